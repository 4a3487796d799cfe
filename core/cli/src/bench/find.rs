//! Finds the programs that a contender needs, and says how to install those that are missing. Knows
//! nothing of what is measured.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::library::{Contender, Language, Library, Peer};
use polyrank::env::variable::{self, Variable};

/// Programs that the command line names, by their purpose.
#[derive(Clone, Debug, Default)]
pub(super) struct Programs {
    /// `NAME=PATH`: the Python of a peer, or of polyrank.
    pub(super) pythons: BTreeMap<String, PathBuf>,
}

/// The programs of one contender.
#[derive(Clone, Debug, Default)]
pub(super) struct ContenderPrograms {
    pub(super) python: OsString,
    pub(super) node: OsString,
    /// The launcher of the ranks, where there is one.
    pub(super) launcher: Option<OsString>,
}

/// A program that a contender needs and that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MissingProgram {
    pub(super) what: String,
    /// What to do about it.
    pub(super) advice: String,
}

impl Programs {
    /// The programs that `--python` names, as `NAME=PATH`.
    ///
    /// # Errors
    /// Names an argument that is not of that form, or whose name is not that of a peer with a
    /// Python.
    pub(super) fn of_option(python: &[String]) -> Result<Programs, String> {
        let mut programs = Programs::default();
        for (name, path) in pairs(python, "--python gloo=/usr/bin/python3")? {
            if !["gloo", "openmpi", "mpich", "polyrank"].contains(&name.as_str()) {
                return Err(format!("--python {name}: expected gloo, openmpi, mpich or polyrank"));
            }
            programs.pythons.insert(name, path.into());
        }
        Ok(programs)
    }

    /// Finds all programs that `contender` needs, and tries them.
    pub(super) fn find(&self, contender: &Contender) -> Result<ContenderPrograms, MissingProgram> {
        match &contender.library {
            Library::Polyrank(languages) => self.find_polyrank(languages),
            Library::Peer(peer) => self.find_peer(*peer),
        }
    }

    fn find_polyrank(&self, languages: &[Language]) -> Result<ContenderPrograms, MissingProgram> {
        let mut found = ContenderPrograms::default();
        if languages.contains(&Language::Python) {
            found.python = self.python("polyrank", variable::POLYRANK_PYTHON);
            try_program(&found.python, &["-c", "import numpy, polyrank"]).map_err(|said| {
                MissingProgram {
                    what: format!(
                        "polyrank for Python ({}: {said})",
                        found.python.to_string_lossy()
                    ),
                    advice: "python3 -m venv polyrank && polyrank/bin/pip install polyrank numpy, \
                             then --python polyrank=polyrank/bin/python"
                        .to_owned(),
                }
            })?;
        }
        if languages.contains(&Language::Node) {
            found.node = variable::POLYRANK_NODE.value().unwrap_or_else(|| "node".into());
            let words = ["--input-type=module", "--eval", "await import('polyrank')"];
            try_program(&found.node, &words).map_err(|said| MissingProgram {
                what: format!("polyrank for Node ({}: {said})", found.node.to_string_lossy()),
                advice: "npm install polyrank, and run the benchmark in the same folder".to_owned(),
            })?;
        }
        Ok(found)
    }

    fn find_peer(&self, peer: Peer) -> Result<ContenderPrograms, MissingProgram> {
        let name = if peer == Peer::OpenMpiTcp { Peer::OpenMpi.name() } else { peer.name() };
        let variable = match peer {
            Peer::Gloo => variable::POLYRANK_BENCH_GLOO,
            Peer::OpenMpi | Peer::OpenMpiTcp => variable::POLYRANK_BENCH_OPENMPI,
            Peer::Mpich => variable::POLYRANK_BENCH_MPICH,
            Peer::Memcpy => return Ok(ContenderPrograms::default()),
        };
        let python = self.python(name, variable);
        let missing = |said: String| MissingProgram {
            what: format!("{} ({}: {said})", peer.name(), python.to_string_lossy()),
            advice: format!(
                "{}, then --python {name}={name}/bin/python, or set {variable}",
                peer.installation()
            ),
        };
        if !peer.is_mpi() {
            let probe = "import numpy, torch.distributed as d; assert d.is_gloo_available()";
            try_program(&python, &["-c", probe]).map_err(missing)?;
            return Ok(ContenderPrograms { python, ..ContenderPrograms::default() });
        }
        let wanted = if peer == Peer::Mpich { "MPICH" } else { "Open MPI" };
        let probe = format!(
            "import numpy, mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; \
             v = MPI.Get_library_version(); assert '{wanted}' in v, 'this MPI is ' + v[:40]"
        );
        try_program(&python, &["-c", &probe]).map_err(missing)?;
        let launcher = mpiexec(&python);
        try_program(&launcher, &["--version"])
            .map_err(|said| missing(format!("{}: {said}", launcher.to_string_lossy())))?;
        let launcher = Some(launcher);
        Ok(ContenderPrograms { python, launcher, ..ContenderPrograms::default() })
    }

    /// The Python that the command line names, or the environment, or the usual one.
    fn python(&self, name: &str, variable: Variable) -> OsString {
        let named = self.pythons.get(name).map(|path| path.clone().into_os_string());
        named.or_else(|| variable.value()).unwrap_or_else(|| "python3".into())
    }
}

/// The `mpiexec` beside the given Python, or else the usual one.
fn mpiexec(python: &OsString) -> OsString {
    let beside = Path::new(python).with_file_name("mpiexec");
    // A bare `python3` is searched for in the path, and so is `mpiexec` then.
    if beside.components().count() > 1 && beside.exists() {
        return beside.into_os_string();
    }
    "mpiexec".into()
}

/// Runs a program to its end. The error is its last line of output, if it failed.
fn try_program(program: &OsString, words: &[&str]) -> Result<(), String> {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null());
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    // Node ends with its version, Python with the exception.
    let mut errors = lines.filter(|line| !line.starts_with("Node.js") && !line.starts_with("at "));
    let named = errors.clone().find(|line| line.starts_with("Error"));
    let said = named.or(errors.next_back()).map(str::to_owned);
    Err(said.unwrap_or_else(|| format!("it failed without output, {}", output.status)))
}

/// Reads the names and values of an option that is written like `example`.
pub(super) fn pairs(texts: &[String], example: &str) -> Result<Vec<(String, String)>, String> {
    let pair = |text: &String| {
        let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
        let pair =
            pair.ok_or_else(|| format!("'{text}' is not of the form NAME=VALUE, as in {example}"))?;
        Ok((pair.0.to_owned(), pair.1.to_owned()))
    };
    texts.iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_is_missing_is_named_with_the_cure() {
        let mut programs = Programs::default();
        programs.pythons.insert("gloo".to_owned(), "/nowhere/python".into());
        let contender = Contender {
            name: "gloo".to_owned(),
            library: Library::Peer(Peer::Gloo),
            memory: Default::default(),
            call_style: Default::default(),
            environment: Vec::new(),
            unsupported: Vec::new(),
        };
        let missing = programs.find(&contender).unwrap_err();
        assert!(missing.what.starts_with("gloo (/nowhere/python: No such file"), "{missing:?}");
        assert!(missing.advice.contains("pip install torch numpy"), "{missing:?}");
        assert!(missing.advice.contains("--python gloo="), "{missing:?}");
    }

    #[test]
    fn a_failed_program_is_quoted() {
        let said = try_program(&"sh".into(), &["-c", "echo one >&2; echo two >&2; exit 1"]);
        assert_eq!(said, Err("two".to_owned()));
        assert_eq!(try_program(&"sh".into(), &["-c", "exit 0"]), Ok(()));
        assert!(
            try_program(&"sh".into(), &["-c", "exit 1"]).unwrap_err().contains("without output")
        );
    }
}
