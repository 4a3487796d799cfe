//! Finding the NCCL library: where it is looked for, and whether it is new enough. No device is
//! touched here.

#![allow(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::functions::Functions;
use super::version::Version;
use crate::env::variable::{self, Variable};

/// Names a library; nothing else is looked for then.
const VARIABLE: Variable = variable::POLYRANK_NCCL_LIBRARY;

/// The name that the library itself has, the only one in the wheels of PyPI.
const NAME: &str = "libnccl.so.2";
/// The name that only packages for developers have.
const DEVELOPERS_NAME: &str = "libnccl.so";
/// Where wheels put it, in a folder of packages.
const IN_PACKAGES: &str = "nvidia/nccl/lib/libnccl.so.2";

/// The oldest version that has all that is used: splitting of communicators is the newest of it.
const LEAST: Version = Version(2_18_01);

/// A library that was found and can be used.
pub(super) struct LoadedLibrary {
    pub(super) functions: Functions,
    /// What it was opened as.
    pub(super) name: String,
    pub(super) version: Version,
    /// The functions are its own.
    _library: Library,
}

/// Finds the library.
///
/// # Errors
/// What was looked for, and what was wrong with each that was there.
pub(super) fn find() -> Result<LoadedLibrary, String> {
    if let Some(path) = VARIABLE.value() {
        let shown = path.to_string_lossy().into_owned();
        return open(&path).map_err(|refusal| match refusal {
            Refusal::Missing(why) | Refusal::Unfit(why) => {
                format!("{VARIABLE} is '{shown}': {why}")
            }
        });
    }
    let packages = package_folders();
    let beside = packages.iter().map(|folder| folder.join(IN_PACKAGES));
    let beside = beside.filter(|path| path.exists()).map(PathBuf::into_os_string);
    // The loader knows a library by its name once it is loaded, from wherever it was.
    let candidates = std::iter::once(OsString::from(NAME))
        .chain(beside)
        .chain(std::iter::once(OsString::from(DEVELOPERS_NAME)));
    let mut unfit: Vec<String> = Vec::new();
    for candidate in candidates {
        match open(&candidate) {
            Ok(found) => return Ok(found),
            Err(Refusal::Missing(_)) => {}
            Err(Refusal::Unfit(why)) => {
                unfit.push(format!("{}: {why}", candidate.to_string_lossy()));
            }
        }
    }
    let looked = format!(
        "looked for {NAME} and {DEVELOPERS_NAME} in this process and where the system's loader \
         looks, and for {IN_PACKAGES} in Python's packages; {VARIABLE} may name another"
    );
    Err(match unfit.is_empty() {
        true => format!("found no NCCL library: {looked}"),
        false => format!("found no NCCL library that can be used: {}; {looked}", unfit.join("; ")),
    })
}

/// Why a library is not used.
enum Refusal {
    /// It cannot be opened.
    Missing(String),
    /// It is there, and of no use.
    Unfit(String),
}

fn open(name: &OsStr) -> Result<LoadedLibrary, Refusal> {
    // SAFETY: what the library does when it is loaded is its maker's affair; NCCL does nothing
    // there.
    let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) };
    let library = library.map_err(|error| {
        // Its own text says only that it failed.
        let source = std::error::Error::source(&error).map(ToString::to_string);
        Refusal::Missing(source.unwrap_or_else(|| error.to_string()))
    })?;
    let version = Functions::version(&library).map_err(Refusal::Unfit)?;
    if version < LEAST {
        let why = format!("it is NCCL {version}; {LEAST} or newer is needed");
        return Err(Refusal::Unfit(why));
    }
    let functions = Functions::find(&library).map_err(Refusal::Unfit)?;
    let name = name.to_string_lossy().into_owned();
    Ok(LoadedLibrary { functions, name, version, _library: library })
}

/// Folders of Python packages: those of which this process has loaded something, and those of the
/// environments that its variables and its program name.
fn package_folders() -> Vec<PathBuf> {
    let mut folders =
        loaded_packages(&std::fs::read_to_string("/proc/self/maps").unwrap_or_default());
    let roots = [variable::VIRTUAL_ENV, variable::CONDA_PREFIX].into_iter();
    let mut roots: Vec<PathBuf> = roots.filter_map(Variable::value).map(PathBuf::from).collect();
    let own = std::env::args_os().next().map(PathBuf::from);
    roots.extend(own.as_deref().and_then(Path::parent).and_then(Path::parent).map(Path::to_owned));
    for root in roots {
        let Ok(entries) = std::fs::read_dir(root.join("lib")) else { continue };
        let names = entries
            .flatten()
            .filter(|it| it.file_name().as_encoded_bytes().starts_with(b"python3"));
        folders.extend(names.map(|it| it.path().join("site-packages")));
    }
    folders.dedup();
    folders
}

/// The folders of packages in a list of what a process has in its memory.
fn loaded_packages(maps: &str) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for line in maps.lines() {
        let Some(path) = line.find('/').map(|start| &line[start..]) else { continue };
        for name in ["/site-packages/", "/dist-packages/"] {
            let Some(end) = path.find(name) else { continue };
            let folder = PathBuf::from(&path[..end + name.len() - 1]);
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_found_where_something_of_them_is_loaded() {
        let maps = "7f00 r-xp 0 08:01 1 /usr/lib/libc.so.6\n\
                    7f01 r-xp 0 08:01 2 /opt/a b/lib/python3.11/site-packages/x/_core.so\n\
                    7f02 rw-p 0 08:01 2 /opt/a b/lib/python3.11/site-packages/x/_core.so\n\
                    7f03 rw-p 0 00:00 0 [heap]\n";
        let expected = [PathBuf::from("/opt/a b/lib/python3.11/site-packages")];
        assert_eq!(loaded_packages(maps), expected);
    }

    #[test]
    fn a_file_that_is_no_nccl_library_is_refused_with_a_reason() {
        let why = |name: &str| match open(OsStr::new(name)) {
            Ok(_) => panic!("{name} was taken"),
            Err(Refusal::Missing(why) | Refusal::Unfit(why)) => why,
        };
        assert!(why("libc.so.6").contains("lacks ncclGetVersion"));
        assert!(why("/nowhere/libnccl.so.2").contains("No such file"));
    }
}
