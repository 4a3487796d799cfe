//! Algorithms that the command line forces: which operations have them, and how ranks are told.
//! Knows nothing of how an algorithm is run.

use super::operation::Operation;

/// One algorithm, forced on all operations that have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ForcedAlgorithm {
    /// The value of `POLYRANK_ALGORITHM` for the ranks; `None` lets them choose.
    pub(super) variable: Option<String>,
    /// The operations that do not have the algorithm.
    pub(super) unsupported: Vec<Operation>,
    /// What to tell the user about these.
    pub(super) note: Option<String>,
}

/// Looks which of `operations` have `algorithm`; "auto" is for all.
///
/// # Errors
/// None of them has it.
pub(super) fn force(algorithm: &str, operations: &[Operation]) -> Result<ForcedAlgorithm, String> {
    if algorithm == "auto" {
        return Ok(ForcedAlgorithm::default());
    }
    let has = |operation: &Operation| names(*operation).contains(&algorithm);
    let (having, unsupported): (Vec<Operation>, Vec<Operation>) =
        operations.iter().partition(|o| has(o));
    if operations.iter().all(|operation| names(*operation).is_empty()) {
        return Err(format!("--algorithm {algorithm}: nothing that is measured has algorithms"));
    }
    if having.is_empty() {
        let known = known(&unsupported);
        return Err(format!("--algorithm {algorithm}: none of the operations has it; {known}"));
    }
    let entries: Vec<String> =
        having.iter().map(|operation| format!("{}={algorithm}", operation.name())).collect();
    let note = (!unsupported.is_empty()).then(|| {
        format!(
            "--algorithm {algorithm}: operations without it are left out; {}",
            known(&unsupported)
        )
    });
    Ok(ForcedAlgorithm { variable: Some(entries.join(",")), unsupported, note })
}

/// The algorithms that an operation has.
fn names(operation: Operation) -> Vec<&'static str> {
    let collective = operation.collective();
    let algorithms = collective.map(|collective| collective.algorithms()).unwrap_or_default();
    algorithms.iter().map(|algorithm| algorithm.name).collect()
}

/// What each of `operations` has.
fn known(operations: &[Operation]) -> String {
    let known = |operation: &Operation| match names(*operation).join(", ") {
        names if names.is_empty() => format!("{} has no algorithms", operation.name()),
        names => format!("{} has {names}", operation.name()),
    };
    operations.iter().map(known).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn operations_that_lack_an_algorithm_are_told_with_what_they_have() {
        let operations = [Operation::Allreduce, Operation::Barrier, Operation::Pingpong];
        let forced = force("ring", &operations).unwrap();
        assert_eq!(forced.variable.as_deref(), Some("allreduce=ring"));
        assert_eq!(forced.unsupported, [Operation::Barrier, Operation::Pingpong]);
        let note = forced.note.unwrap();
        assert!(note.contains("barrier has direct"), "{note}");
        assert!(note.contains("pingpong has no algorithms"), "{note}");
        assert_eq!(force("ring", &operations[..1]).unwrap().note, None);
        assert_eq!(force("auto", &operations), Ok(ForcedAlgorithm::default()));
    }

    #[test]
    fn an_algorithm_that_nobody_has_is_an_error() {
        let why = force("rign", &[Operation::Allreduce, Operation::Barrier]).unwrap_err();
        assert!(why.contains("allreduce has ") && why.contains("barrier has "), "{why}");
        assert!(force("ring", &[Operation::Sendrecv]).unwrap_err().contains("nothing"));
    }
}
