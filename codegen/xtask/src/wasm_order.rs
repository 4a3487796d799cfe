//! An order of a module's functions in which gzip, which looks back 32 KiB, finds most: each is
//! followed by the one that is most like those before it. Knows how a module is laid out, and
//! nothing of what its functions do.

use std::collections::HashMap;

use anyhow::Result;
use wasm_encoder::{NameMap, NameSection, Section};
use wasmparser::{Parser, Payload, TypeRef};

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
    let (mut imported, mut functions) = (0, Vec::new());
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    imported += u32::from(matches!(import?.ty, TypeRef::Func(_)));
                }
            }
            Payload::CodeSectionEntry(body) => functions.push(body.as_bytes()),
            _ => {}
        }
    }
    let mut places = vec![0; functions.len()];
    for (place, function) in order(&functions).into_iter().enumerate() {
        places[function] = place;
    }
    let mut names = NameMap::new();
    for (function, place) in (imported..).zip(places) {
        names.append(function, &format!("{place:06}"));
    }
    let mut section = NameSection::new();
    section.functions(&names);
    let mut named = module.to_vec();
    section.append_to(&mut named);
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use wasm_encoder::{
        CodeSection, EntityType, Function, FunctionSection, ImportSection, Instruction, MemoryType,
        Module, TypeSection,
    };
    use wasmparser::{KnownCustom, Name};

    use super::*;

    /// A module that imports a memory and a function, and has one function for each list of
    /// constants, which it drops.
    fn module(constants: &[&[i64]]) -> Vec<u8> {
        let (mut types, mut imports) = (TypeSection::new(), ImportSection::new());
        types.ty().function([], []);
        let memory = MemoryType {
            minimum: 1,
            maximum: Some(2),
            memory64: false,
            shared: false,
            page_size_log2: None,
        };
        imports.import("of", "memory", EntityType::Memory(memory));
        imports.import("of", "function", EntityType::Function(0));
        let (mut functions, mut code) = (FunctionSection::new(), CodeSection::new());
        for constants in constants {
            functions.function(0);
            let mut function = Function::new([]);
            for constant in *constants {
                function.instruction(&Instruction::I64Const(*constant));
                function.instruction(&Instruction::Drop);
            }
            function.instruction(&Instruction::End);
            code.function(&function);
        }
        let mut module = Module::new();
        module.section(&types).section(&imports).section(&functions).section(&code);
        module.finish()
    }

    /// The names of functions of a module, by their numbers.
    fn names(module: &[u8]) -> Vec<(u32, String)> {
        let mut found = Vec::new();
        for payload in Parser::new(0).parse_all(module) {
            let Payload::CustomSection(section) = payload.unwrap() else { continue };
            let KnownCustom::Name(parts) = section.as_known() else { continue };
            for part in parts {
                let Name::Function(functions) = part.unwrap() else { continue };
                let all = functions.into_iter().map(Result::unwrap);
                found.extend(all.map(|it| (it.index, it.name.to_owned())));
            }
        }
        found
    }

    #[test]
    fn each_function_stands_beside_the_one_that_is_like_it() {
        let of = |first: i64| (first..first + 40).map(|n| n * 0x1_2345_6789).collect::<Vec<_>>();
        let (one, other) = (of(1), of(1000));
        let module = module(&[&one, &other, &one[1..], &other[1..]]);
        let named = with_ordered_names(&module).unwrap();
        assert!(named.starts_with(&module));
        let names = names(&named);
        // The imported function comes first, without a name.
        let numbers: Vec<u32> = names.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [1, 2, 3, 4]);
        let place = |number: usize| names[number].1.parse::<i32>().unwrap();
        assert_eq!((place(0) - place(2)).abs(), 1, "{names:?}");
        assert_eq!((place(1) - place(3)).abs(), 1, "{names:?}");
    }

    #[test]
    fn what_is_no_module_is_refused() {
        let module = module(&[&[1]]);
        assert!(with_ordered_names(&module[..module.len() - 2]).is_err());
        assert!(with_ordered_names(b"text").is_err());
    }
}
