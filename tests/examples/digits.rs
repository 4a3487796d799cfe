//! Softmax regression on handwritten digits, data-parallel: the Rust ranks of the demo.
//!
//! `tests/demo/digits.py` is the same program in Python, `digits.mjs` in JavaScript, for Node and
//! for a browser; ranks of all are in one group. Every rank sums the gradient over its share of a
//! batch, so that a share weighs as much as it has images; allreduce adds the shares; every rank
//! takes the same step from the same sum, so that all hold the same weights to the last bit.

use std::error::Error;
use std::process::ExitCode;

use polyrank::distributed::{InitOptions, destroy_process_group, init_process_group};
use polyrank::{ProcessGroup, ReduceOp};
use polyrank_tests::digits::{CLASSES, INPUTS, Image, fingerprint, gradient, load, scores};

const LANGUAGE: &str = "Rust";
const EPOCHS: usize = 40;
const BATCH: usize = 256;
const LEARNING_RATE: f32 = 0.5;
const ACCURACY_WANTED: f64 = 0.93;
const DIFFERENCE_ALLOWED: f32 = 1e-5;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let group = init_process_group(InitOptions::default())?;
    let (rank, size) = (group.rank(), group.size());
    let store = group.get_group_store();
    store.set(&format!("language/{rank}"), LANGUAGE.as_bytes())?;
    let named = |other| Ok(String::from_utf8(store.get(&format!("language/{other}"))?)?);
    let languages = (0..size).map(named).collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    let (images, tests) = load()?;
    let show = |epoch: usize, weights: &[f32], loss: f64| {
        let counts = count_right(&group, weights, &tests)?;
        if rank == 0 {
            println!("epoch {epoch:2}: loss {loss:.7}, {}", read_right(&languages, &counts));
        }
        Ok(())
    };
    let add_up = |total: &mut Vec<f32>| group.allreduce(total, ReduceOp::Sum);
    let (weights, loss) = train(&images, rank, size, add_up, show)?;
    let counts = count_right(&group, &weights, &tests)?;
    let share = f64::from(counts[rank as usize][0]) / f64::from(counts[rank as usize][1]);
    let same = is_same_everywhere(&group, &weights)?;
    let columns = format!("{LANGUAGE:8}  {loss:.7}  {share:.4}    {:016x}", fingerprint(&weights));
    store.set(&format!("result/{rank}"), columns.as_bytes())?;
    let mut good = same && right_of_all(&counts) >= ACCURACY_WANTED;
    if rank == 0 {
        let (alone, _) = train(&images, 0, 1, |_| Ok(()), |_, _, _| Ok(()))?;
        let differences = weights.iter().zip(&alone).map(|(ours, theirs)| (ours - theirs).abs());
        let difference = differences.fold(0.0, f32::max);
        good = good && difference <= DIFFERENCE_ALLOWED;
        println!("rank  language  loss       accuracy  weights");
        for other in 0..size {
            println!("{other:4}  {}", String::from_utf8(store.get(&format!("result/{other}"))?)?);
        }
        let same = if same { "the same bits" } else { "DIFFERENT" };
        println!("weights are {same} on all {size} ranks");
        println!("largest difference to a single process: {difference:.1e}");
    }
    destroy_process_group(None)?;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The weights (input by class) and the last epoch's mean loss. `add_up` sums a vector over the
/// ranks, in place; `show` is told the weights and the mean loss after each epoch.
fn train(
    images: &[Image],
    rank: u32,
    size: u32,
    add_up: impl Fn(&mut Vec<f32>) -> polyrank::Result<()>,
    show: impl Fn(usize, &[f32], f64) -> polyrank::Result<()>,
) -> polyrank::Result<(Vec<f32>, f64)> {
    let mut weights = vec![0.0_f32; INPUTS * CLASSES];
    let mut mean_loss = 0.0;
    for epoch in 1..=EPOCHS {
        let mut loss = 0.0;
        for batch in images.chunks(BATCH) {
            let mine = batch.iter().skip(rank as usize).step_by(size as usize);
            let mut total = gradient(&weights, mine);
            add_up(&mut total)?;
            // Single operations of IEEE 754 on binary32, each rounded: every language has the same.
            let step = LEARNING_RATE / batch.len() as f32;
            for (weight, slope) in weights.iter_mut().zip(&total) {
                *weight -= step * slope;
            }
            loss += f64::from(total[INPUTS * CLASSES]);
        }
        mean_loss = loss / images.len() as f64;
        show(epoch, &weights, mean_loss)?;
    }
    Ok((weights, mean_loss))
}

/// For each rank, how many of its images it reads right and how many it has.
fn count_right(
    group: &ProcessGroup,
    weights: &[f32],
    images: &[Image],
) -> polyrank::Result<Vec<[i32; 2]>> {
    let reads_right = |image: &&Image| {
        let scores = scores(weights, image);
        let best = (0..CLASSES).max_by(|a, b| scores[*a].total_cmp(&scores[*b]));
        best == Some(image.digit)
    };
    let (rank, size) = (group.rank() as usize, group.size() as usize);
    let mine = || images.iter().skip(rank).step_by(size);
    let mut counts = vec![0; 2 * size];
    counts[2 * rank] = mine().filter(reads_right).count() as i32;
    counts[2 * rank + 1] = mine().count() as i32;
    group.allreduce(&mut counts, ReduceOp::Sum)?;
    Ok(counts.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect())
}

fn right_of_all(counts: &[[i32; 2]]) -> f64 {
    let sum = |at: usize| counts.iter().map(|pair| f64::from(pair[at])).sum::<f64>();
    sum(0) / sum(1)
}

/// The counts in words, of all ranks and of each.
fn read_right(languages: &[String], counts: &[[i32; 2]]) -> String {
    let share = |(name, [right, all]): (&String, &[i32; 2])| {
        format!("{name} {:.2}", f64::from(*right) / f64::from(*all))
    };
    let shares: Vec<String> = languages.iter().zip(counts).map(share).collect();
    format!("{:.4} read right ({})", right_of_all(counts), shares.join(", "))
}

/// Whether every rank holds these bits: their smallest and largest pattern are then equal.
fn is_same_everywhere(group: &ProcessGroup, weights: &[f32]) -> polyrank::Result<bool> {
    let mut smallest: Vec<u32> = weights.iter().map(|weight| weight.to_bits()).collect();
    let mut largest = smallest.clone();
    group.allreduce(&mut smallest, ReduceOp::Min)?;
    group.allreduce(&mut largest, ReduceOp::Max)?;
    Ok(smallest == largest)
}
