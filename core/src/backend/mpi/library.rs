//! Finding an MPI library: where it is looked for, what ABI it has, whether it fits to the
//! launcher. Nothing of it is initialised here.

#![allow(unsafe_code)]

use std::ffi::{OsStr, OsString, c_char, c_int};
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};

use super::abi::Abi;
use super::launcher::{Launcher, Maker};
use crate::env::variable::{self, Variable};

/// Names a library; nothing else is looked for then.
const VARIABLE: Variable = variable::POLYRANK_MPI_LIBRARY;

/// Names of Open MPI's library.
const OPEN_MPI: [&str; 1] = ["libmpi.so.40"];
/// Names of MPICH's library, by its own ABI; the second is Debian's.
const MPICH: [&str; 2] = ["libmpi.so.12", "libmpich.so.12"];
/// Names of a library with the standard ABI. MPICH 5 comes with both: other parts of a program, as
/// mpi4py, are built for its own, and there can be but one MPI in a process.
const STANDARD: [&str; 2] = ["libmpi_abi.so.1", "libmpi_abi.so.0"];
/// The name without a version, of whatever is the system's choice.
const ANY: [&str; 2] = ["libmpi_abi.so", "libmpi.so"];

/// Most bytes that `MPI_Get_library_version` writes in any of the three ABIs.
const MAX_VERSION_BYTES: usize = 8192;

/// A library that was found and can be used.
#[derive(Debug)]
pub(super) struct LoadedLibrary {
    pub(super) library: Library,
    /// What it was opened as.
    pub(super) name: String,
    pub(super) abi: Abi,
    /// The first line of what it says of itself.
    pub(super) version: String,
}

/// Finds the library to use in a process that `launcher` started.
///
/// # Errors
/// What was looked for, and what was wrong with each that was there.
pub(super) fn find(launcher: &Launcher) -> Result<LoadedLibrary, String> {
    if let Some(path) = VARIABLE.value() {
        let shown = path.to_string_lossy().into_owned();
        return open(&path, launcher).map_err(|refusal| match refusal {
            Refusal::Missing(why) | Refusal::Unfit(why) => {
                format!("{VARIABLE} is '{shown}': {why}")
            }
        });
    }
    let names = names(launcher);
    let loaded = names.iter().filter(|name| is_loaded(name)).map(OsString::from);
    let beside = folders().into_iter().flat_map(|folder| {
        let paths = names.iter().map(move |name| folder.join(name));
        paths.filter(|path| path.exists()).map(PathBuf::into_os_string).collect::<Vec<_>>()
    });
    let candidates = loaded.chain(beside).chain(names.iter().map(OsString::from));
    let mut unfit: Vec<String> = Vec::new();
    for candidate in candidates {
        match open(&candidate, launcher) {
            Ok(found) => return Ok(found),
            Err(Refusal::Missing(_)) => {}
            Err(Refusal::Unfit(why)) => {
                let why = format!("{}: {why}", candidate.to_string_lossy());
                if !unfit.contains(&why) {
                    unfit.push(why);
                }
            }
        }
    }
    let looked = format!(
        "looked for {} in this process, beside mpiexec and python, and where the system's loader \
         looks; {VARIABLE} may name another",
        names.join(", ")
    );
    Err(match unfit.is_empty() {
        true => format!("found no MPI library: {looked}"),
        false => format!("found no MPI library that can be used: {}; {looked}", unfit.join("; ")),
    })
}

/// Why a library is not used.
enum Refusal {
    /// It cannot be opened.
    Missing(String),
    /// It is there, and of no use.
    Unfit(String),
}

/// The names to look for, the most fitting first.
fn names(launcher: &Launcher) -> Vec<&'static str> {
    let all: [&[&'static str]; 4] = match launcher.prefers() {
        Some(Maker::OpenMpi) => [&OPEN_MPI, &ANY, &STANDARD, &MPICH],
        Some(Maker::Mpich) => [&MPICH, &STANDARD, &ANY, &OPEN_MPI],
        None => [&OPEN_MPI, &MPICH, &STANDARD, &ANY],
    };
    all.concat()
}

/// Folders besides those of the system's loader: beside the launcher that started this process,
/// beside the first one on the path and beside the interpreter, where wheels put their libraries.
fn folders() -> Vec<PathBuf> {
    let beside = |program: &Path| program.parent()?.parent().map(|root| root.join("lib"));
    let own = std::env::args_os().next().map(PathBuf::from);
    let own = own.filter(|own| own.components().count() > 1);
    let roots = [variable::OPAL_PREFIX, variable::VIRTUAL_ENV, variable::CONDA_PREFIX];
    let roots = roots.into_iter().filter_map(Variable::value);
    let roots = roots.map(|root| Path::new(&root).join("lib"));
    // The parent of a rank is its launcher, or that one's proxy.
    let parent = format!("/proc/{}/exe", std::os::unix::process::parent_id());
    let parent = std::fs::read_link(parent).ok();
    let mut folders: Vec<PathBuf> = parent.as_deref().and_then(beside).into_iter().collect();
    folders.extend(roots);
    folders.extend(own.as_deref().and_then(beside));
    let path = variable::PATH.value().unwrap_or_default();
    let launcher = std::env::split_paths(&path).map(|folder| folder.join("mpiexec"));
    folders.extend(launcher.filter(|file| file.exists()).filter_map(|file| beside(&file)));
    folders
}

/// Whether this process has loaded a library of that name, as mpi4py does.
fn is_loaded(name: &str) -> bool {
    /// `RTLD_NOLOAD`: of libraries that are there already.
    const NO_LOAD: c_int = if cfg!(target_os = "macos") { 0x10 } else { 0x4 };
    // SAFETY: nothing is loaded, so that no initialiser runs.
    unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL | NO_LOAD) }.is_ok()
}

fn open(name: &OsStr, launcher: &Launcher) -> Result<LoadedLibrary, Refusal> {
    // SAFETY: what the library does when it is loaded is its maker's affair; MPI libraries do
    // nothing there that another could break.
    let open = |flags| unsafe { Library::open(Some(name), RTLD_NOW | flags) };
    let missing = |error: libloading::Error| {
        // Its own text says only that it failed.
        let source = std::error::Error::source(&error).map(ToString::to_string);
        Refusal::Missing(source.unwrap_or_else(|| error.to_string()))
    };
    // Not yet for all to see: what is refused must not answer for another library's functions.
    let library = open(RTLD_LOCAL).map_err(missing)?;
    let (abi, version) = identify(&library).map_err(Refusal::Unfit)?;
    let maker = match version.contains("Open MPI") {
        true => Maker::OpenMpi,
        false => Maker::Mpich,
    };
    launcher.fits(maker).map_err(Refusal::Unfit)?;
    // The plugins of Open MPI look for its functions among those that all can see.
    let library = open(RTLD_GLOBAL).map_err(missing)?;
    Ok(LoadedLibrary { library, name: name.to_string_lossy().into_owned(), abi, version })
}

/// The ABI of a library, and what it says of itself. Both may be asked before it is initialised.
fn identify(library: &Library) -> Result<(Abi, String), String> {
    type Version = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
    type AbiVersion = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
    // SAFETY: the type is that of the standard, in all ABIs.
    let version = unsafe { library.get::<Version>(b"MPI_Get_library_version") };
    let version = version.map_err(|_| "it lacks MPI_Get_library_version".to_owned())?;
    let mut text = vec![0_u8; MAX_VERSION_BYTES];
    let mut length: c_int = 0;
    // SAFETY: the text has room for as much as any ABI's constant allows.
    let failed = unsafe { version(text.as_mut_ptr().cast(), &raw mut length) } != 0;
    if failed {
        return Err("MPI_Get_library_version fails".to_owned());
    }
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    let text = String::from_utf8_lossy(&text[..end]).into_owned();
    let first_line = text.lines().next().unwrap_or_default().trim().to_owned();
    // SAFETY: only the address is looked at.
    if unsafe { library.get::<*mut u8>(b"ompi_mpi_comm_world") }.is_ok() {
        return Ok((Abi::OpenMpi, first_line));
    }
    // SAFETY: the type is that of the standard. A library of another ABI that has the function
    // answers -1.
    let standard = unsafe {
        library.get::<AbiVersion>(b"MPI_Abi_get_version").is_ok_and(|abi| {
            let (mut major, mut minor) = (-1, -1);
            abi(&raw mut major, &raw mut minor) == 0 && major >= 1
        })
    };
    Ok((if standard { Abi::Standard } else { Abi::Mpich }, first_line))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn launcher(variables: &'static [(&str, &str)]) -> Launcher {
        Launcher::from_lookup(|variable| {
            let found = variables.iter().find(|(name, _)| *name == variable.name());
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_launchers_own_library_is_looked_for_first() {
        let names = |variables| names(&launcher(variables));
        assert_eq!(names(&[("OMPI_COMM_WORLD_SIZE", "2")])[0], "libmpi.so.40");
        assert_eq!(names(&[("PMI_RANK", "0")])[0], "libmpi.so.12");
        for variables in [&[][..], &[("OMPI_COMM_WORLD_SIZE", "2")], &[("PMI_RANK", "0")]] {
            let mut all = names(variables);
            let count = all.len();
            all.sort_unstable();
            all.dedup();
            assert_eq!((all.len(), count), (7, 7), "each name once");
        }
    }

    #[test]
    fn a_file_that_is_no_mpi_library_is_refused_with_a_reason() {
        let alone = launcher(&[]);
        let why = |name: &str| match open(OsStr::new(name), &alone) {
            Ok(_) => panic!("{name} was taken"),
            Err(Refusal::Missing(why) | Refusal::Unfit(why)) => why,
        };
        assert!(why("libc.so.6").contains("lacks MPI_Get_library_version"));
        assert!(why("/nowhere/libmpi.so.40").contains("No such file"));
    }
}
