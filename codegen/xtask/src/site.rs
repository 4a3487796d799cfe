//! `cargo xtask site`: builds the documentation with its demos, and serves it with a store server
//! beside it. Knows the tools; nothing of what the pages say.

use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::node;
use crate::progress::Progress;
use crate::setup;
use crate::trace_page;
use crate::wasm;
use crate::workspace::Workspace;

/// Where the site lies.
const FOLDER: &str = "site";
/// The store that pages dial unless told otherwise: see `site/src/rooms/address.ts`.
const STORE_PORT: u16 = 29510;
/// How often the two servers, and interrupts, are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// The options of `cargo xtask site`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only build
    #[arg(long)]
    build: bool,
    /// Check types, build, and test in a browser, instead of serving
    #[arg(long, conflicts_with = "build")]
    test: bool,
    /// The port of the pages, on this machine only
    #[arg(long, default_value_t = 4173)]
    port: u16,
    /// The port of the store, on this machine only
    #[arg(long, default_value_t = STORE_PORT)]
    store_port: u16,
}

/// Builds the site, then tests or serves it as asked.
///
/// # Errors
/// Set-up, a build or a test fails; a server cannot be started, or ends.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let workspace = Workspace::find()?;
    let progress = Progress::new(workspace.target("xtask"))?;
    progress.clear("site")?;
    setup::node(&workspace, &progress)?;
    setup::wasm_compiler(&progress)?;
    wasm::build(&workspace, &progress, wasm::Build::Full)?;
    trace_page::build(&workspace, &progress)?;
    if arguments.test {
        progress.demand("site", &mut npm(&workspace, &["run", "check"]))?;
    }
    progress.demand("site", &mut npm(&workspace, &["run", "build"]))?;
    if arguments.build {
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.test {
        test(&workspace, &progress)
    } else {
        serve(&workspace, &progress, arguments)
    }
}

/// The end-to-end tests; they start their own servers.
fn test(workspace: &Workspace, progress: &Progress) -> Result<ExitCode> {
    progress.demand("site", &mut workspace.build_for_suites())?;
    node::place(workspace, "debug")?;
    let mut tests = npm(workspace, &["test"]);
    tests.env("POLYRANK", workspace.target("debug/polyrank"));
    let status = tests.status().context("cannot start npm")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Serves until one of the two servers ends, which is an error, or an interrupt ends both.
fn serve(workspace: &Workspace, progress: &Progress, arguments: &Arguments) -> Result<ExitCode> {
    let cargo = ["build", "--release", "-p", "polyrank-cli", "--bin", "polyrank"];
    progress.demand("site", &mut workspace.cargo(&cargo))?;
    let Arguments { port, store_port, .. } = *arguments;
    let mut store = workspace.command(workspace.target("release/polyrank"));
    store.args(["store", "--host", "127.0.0.1", "--port", &store_port.to_string()]);
    let mut pages = workspace.command("node");
    pages.arg("node_modules/vitepress/bin/vitepress.js");
    pages.args(["preview", "--host", "127.0.0.1", "--port", &port.to_string()]);
    pages.current_dir(workspace.path(FOLDER));
    // From here on, an interrupt ends the servers too, however it reaches this process.
    let mut interrupts = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let mut servers =
        [Server::start("store", store_port, store)?, Server::start("site", port, pages)?];
    let choice = if store_port == STORE_PORT {
        String::new()
    } else {
        format!("demos/allreduce?store=ws://127.0.0.1:{store_port}/")
    };
    let mut shown = false;
    while interrupts.pending().next().is_none() {
        for server in &mut servers {
            server.demand_running()?;
        }
        if !shown && servers.iter().all(Server::answers) {
            eprintln!("[site] pages: http://127.0.0.1:{port}/{choice}");
            eprintln!("[site] store: ws://127.0.0.1:{store_port}/");
            eprintln!("[site] Ctrl-C ends both");
            shown = true;
        }
        sleep(CHECK_INTERVAL);
    }
    Ok(ExitCode::SUCCESS)
}

/// A process that is ended when this is dropped.
struct Server {
    name: &'static str,
    port: u16,
    child: Child,
}

impl Server {
    fn start(name: &'static str, port: u16, mut command: Command) -> Result<Server> {
        // The servers' own output is dropped: it repeats ours, for other addresses, too.
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().with_context(|| format!("cannot start the {name} server"))?;
        Ok(Server { name, port, child })
    }

    /// Whether a process listens on its port.
    fn answers(&self) -> bool {
        TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok()
    }

    fn demand_running(&mut self) -> Result<()> {
        let ended = self.child.try_wait()?;
        let Server { name, port, .. } = self;
        ensure!(ended.is_none(), "the {name} server has ended; is port {port} in use?");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn npm(workspace: &Workspace, words: &[&str]) -> Command {
    let mut command = workspace.command("npm");
    command.args(words).current_dir(workspace.path(FOLDER));
    command
}
