//! Whether all ranks of a group gave the same: each learns who gave something else. Knows no mesh.

use super::layout::invalid;
use crate::backend::BackendType;
use crate::fnv::Fnv;
use crate::generated::error::Result;
use crate::process_group::{ProcessGroup, of_whole, room_for};
use crate::tensor::Device;

/// Up to how many bytes a text is told whole.
const MAX_WHOLE: usize = 240;
/// How many bytes of a longer one are told, around where it differs.
const EXCERPT: usize = 120;
/// How many different things an error tells apart.
const MAX_KINDS: usize = 4;

/// Fails on each of `ranks` of `group` unless all of them gave the same text to `function`. They
/// all call it, and wait for one another.
pub(super) async fn agree(
    group: &ProcessGroup,
    ranks: &[u32],
    function: &str,
    given: &str,
) -> Result<()> {
    if ranks.len() == 1 || group.is_alone() {
        return Ok(());
    }
    let is_operation = ranks.len() == group.size() as usize && compares_calls(group)?;
    let texts = match is_operation {
        true => {
            let texts = gathered_texts(group, given).await;
            texts.map_err(|error| of_whole(error, function))?
        }
        false => group.share_texts(function, ranks, given).await?,
    };
    if texts.iter().all(|text| text == given) {
        return Ok(());
    }
    let told = told(ranks, &texts);
    invalid(format!("{function}: ranks disagree: {told}. All ranks must give the same"))
}

/// Whether a rank that calls another collective of the group instead is found at once: a backend
/// from elsewhere need not have the one that is used here.
fn compares_calls(group: &ProcessGroup) -> Result<bool> {
    let backend = group.get_backend(Device::Cpu)?;
    Ok(backend.backend_type() != BackendType::Custom)
}

/// What each rank of the group gave, if this one gave `given`.
async fn gathered_texts(group: &ProcessGroup, given: &str) -> Result<Vec<String>> {
    let own = [Fnv::of(given.bytes()), given.len() as u64];
    let all = vec![vec![0; own.len()]; group.size() as usize];
    let summaries = group.all_gather_vecs(all, own.to_vec(), None).await?;
    if summaries.iter().all(|other| *other == own) {
        return Ok(vec![given.to_owned(); group.size() as usize]);
    }
    // All ranks see the same summaries, and come here together.
    let room = summaries.iter().map(|summary| room_for(summary[1]));
    let room = room.collect::<Result<_>>()?;
    let texts = group.all_gather_vecs(room, given.as_bytes().to_vec(), None).await?;
    Ok(texts.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect())
}

/// Who of `ranks` gave what.
fn told(ranks: &[u32], texts: &[String]) -> String {
    let mut kinds: Vec<(&str, Vec<u32>)> = Vec::new();
    for (&rank, text) in ranks.iter().zip(texts) {
        match kinds.iter_mut().find(|(known, _)| known == text) {
            Some((_, ranks)) => ranks.push(rank),
            None => kinds.push((text, vec![rank])),
        }
    }
    let more = if kinds.len() > MAX_KINDS { "; others gave other ones" } else { "" };
    kinds.truncate(MAX_KINDS);
    let common = |text: &str| {
        let pairs = text.bytes().zip(kinds[0].0.bytes());
        pairs.take_while(|(byte, other)| byte == other).count()
    };
    let differs_at = kinds.iter().skip(1).map(|(text, _)| common(text)).min().unwrap_or_default();
    let told = kinds.iter().map(|(text, ranks)| {
        let who = match ranks.as_slice() {
            [rank] => format!("rank {rank}"),
            ranks => format!("ranks {ranks:?}"),
        };
        format!("{who} gave {}", excerpt(text, differs_at))
    });
    told.collect::<Vec<_>>().join("; ") + more
}

/// The text, or if it is long, what stands around `place`.
fn excerpt(text: &str, place: usize) -> String {
    if text.len() <= MAX_WHOLE {
        return text.to_owned();
    }
    let start = text.floor_char_boundary(place.saturating_sub(EXCERPT / 2));
    let end = text.floor_char_boundary(start + EXCERPT);
    format!("…{}…", &text[start..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gave_what_is_told_where_it_differs() {
        let texts = ["a", "b", "a"].map(str::to_owned);
        assert_eq!(told(&[0, 1, 2], &texts), "ranks [0, 2] gave a; rank 1 gave b");
        let long = "1, ".repeat(200);
        let texts = [format!("{long}2{long}"), format!("{long}3{long}")];
        let text = told(&[4, 7], &texts);
        assert!(text.contains("1, 21, ") && text.contains("1, 31, ") && text.len() < 400, "{text}");
    }
}
