//! An order of a module's functions in which gzip, which looks back 32 KiB, finds most: each is
//! followed by the one that is most like those before it. Knows how a module is laid out, and
//! nothing of what its functions do.

use std::collections::HashMap;

use anyhow::{Context, Result};

/// Bytes before the first section.
const HEAD_BYTES: usize = 8;
/// The numbers of sections.
const CUSTOM: u8 = 0;
const IMPORTS: u8 = 2;
const CODE: u8 = 10;
/// The part of the section of names that has those of functions.
const FUNCTION_NAMES: u8 = 1;

/// Bytes of the runs by which functions are compared.
const RUN_BYTES: usize = 6;
/// Of all runs, one of so many counts.
const SAMPLE: u64 = 4;
/// Runs in more functions than this say nothing.
const MAX_SHARED: usize = 400;
/// How many functions before count, and how much less each than the one behind it.
const LOOK_BACK: usize = 8;
const FADING: f64 = 0.8;
/// Long functions have many runs: what is shared is divided by this power of the length.
const LENGTH_POWER: f64 = 0.9;

/// `module`, which has no names, with names for its functions, in the order of which they compress
/// best.
///
/// # Errors
/// It is no module.
pub(crate) fn with_ordered_names(module: &[u8]) -> Result<Vec<u8>> {
    let mut reader = Reader { bytes: module, at: HEAD_BYTES };
    let (mut imported, mut functions) = (0, Vec::new());
    while reader.at < module.len() {
        let kind = reader.byte()?;
        let length = reader.number()?;
        let end = reader.at + length;
        match kind {
            IMPORTS => imported = reader.imported_functions()?,
            CODE => functions = reader.functions()?,
            _ => {}
        }
        reader.at = end;
    }
    let mut places = vec![0; functions.len()];
    for (place, function) in order(&functions).into_iter().enumerate() {
        places[function] = place;
    }
    let mut names = Vec::new();
    write_number(&mut names, places.len());
    for (function, place) in places.into_iter().enumerate() {
        write_number(&mut names, imported + function);
        write_text(&mut names, &format!("{place:06}"));
    }
    let mut section = Vec::new();
    write_text(&mut section, "name");
    section.push(FUNCTION_NAMES);
    write_number(&mut section, names.len());
    section.extend(names);
    let mut named = module.to_vec();
    named.push(CUSTOM);
    write_number(&mut named, section.len());
    named.extend(section);
    Ok(named)
}

/// The functions, by their positions, each behind those that it is like.
fn order(functions: &[&[u8]]) -> Vec<usize> {
    let runs: Vec<Vec<u64>> = functions.iter().map(|function| sampled_runs(function)).collect();
    let mut having: HashMap<u64, Vec<usize>> = HashMap::new();
    for (function, runs) in runs.iter().enumerate() {
        runs.iter().for_each(|run| having.entry(*run).or_default().push(function));
    }
    having.retain(|_, known| (2..MAX_SHARED).contains(&known.len()));
    let all = functions.len() as f64;
    let lengths: Vec<f64> = functions
        .iter()
        .map(|it| (it.len() as f64 + RUN_BYTES as f64).powf(LENGTH_POWER))
        .collect();
    let mut is_placed = vec![false; functions.len()];
    let mut likeness = vec![0.0; functions.len()];
    let mut ordered: Vec<usize> = Vec::with_capacity(functions.len());
    let mut shortest: Vec<usize> = (0..functions.len()).collect();
    shortest.sort_by_key(|function| functions[*function].len());
    let mut rest = shortest.into_iter();
    loop {
        likeness.fill(0.0);
        let mut weight = 1.0;
        for before in ordered.iter().rev().take(LOOK_BACK) {
            for known in runs[*before].iter().filter_map(|run| having.get(run)) {
                let shared = weight * (all / known.len() as f64).ln();
                known.iter().for_each(|function| likeness[*function] += shared);
            }
            weight *= FADING;
        }
        let like = (0..functions.len()).filter(|it| !is_placed[*it] && likeness[*it] > 0.0);
        let score = |function: &usize| likeness[*function] / lengths[*function];
        let next = like.max_by(|one, other| score(one).total_cmp(&score(other)));
        let Some(next) = next.or_else(|| rest.find(|it| !is_placed[*it])) else { return ordered };
        is_placed[next] = true;
        ordered.push(next);
    }
}

/// The sample of the runs of a function, each once.
fn sampled_runs(function: &[u8]) -> Vec<u64> {
    let mut runs: Vec<u64> = function
        .windows(RUN_BYTES)
        .map(|run| run.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)))
        // Multiplying mixes the bits, whose upper ones then tell whether the run counts.
        .filter(|run| (run.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).is_multiple_of(SAMPLE))
        .collect();
    runs.sort_unstable();
    runs.dedup();
    runs
}

/// Reads a module.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Result<u8> {
        let byte = *self.bytes.get(self.at).context("the module ends too early")?;
        self.at += 1;
        Ok(byte)
    }

    fn number(&mut self) -> Result<usize> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte()?;
            number |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
    }

    fn skip(&mut self) -> Result<()> {
        let length = self.number()?;
        self.at += length;
        Ok(())
    }

    /// How many functions a section of imports has.
    fn imported_functions(&mut self) -> Result<usize> {
        let mut functions = 0;
        for _ in 0..self.number()? {
            self.skip()?;
            self.skip()?;
            match self.byte()? {
                0 => {
                    functions += 1;
                    self.number()?;
                }
                3 => self.at += 2,
                // Tables, which have a type, and memories.
                kind => {
                    self.at += usize::from(kind == 1);
                    let has_limit = self.byte()? & 1 == 1;
                    self.number()?;
                    if has_limit {
                        self.number()?;
                    }
                }
            }
        }
        Ok(functions)
    }

    /// The functions of a section of code.
    fn functions(&mut self) -> Result<Vec<&'a [u8]>> {
        let mut functions = Vec::new();
        for _ in 0..self.number()? {
            let length = self.number()?;
            let body = self.bytes.get(self.at..self.at + length);
            functions.push(body.context("the module ends too early")?);
            self.at += length;
        }
        Ok(functions)
    }
}

fn write_number(into: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

fn write_text(into: &mut Vec<u8>, text: &str) {
    write_number(into, text.len());
    into.extend(text.as_bytes());
}
