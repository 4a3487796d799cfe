//! What the tasks for the native halves of the Python and the Node package have in common: their
//! options, and the build. Knows nothing of where a package looks for its half.

use anyhow::Result;

use crate::progress::Progress;
use crate::workspace::Workspace;

/// The options of `cargo xtask python` and `cargo xtask node`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// With optimisation, as it is published
    #[arg(long)]
    release: bool,
    /// Only put in its place what Cargo has built for the suites
    #[arg(long, conflicts_with = "release")]
    place: bool,
}

impl Arguments {
    /// Whether Cargo has built it already.
    pub(crate) fn is_built(&self) -> bool {
        self.place
    }

    /// Where Cargo puts what it builds, below `target`.
    pub(crate) fn folder(&self) -> &'static str {
        if self.release { "release" } else { "debug" }
    }

    /// Builds the Cargo package. Its output goes to the log `log`.
    ///
    /// # Errors
    /// The build fails.
    pub(crate) fn build(
        &self,
        workspace: &Workspace,
        progress: &Progress,
        log: &str,
        package: &str,
    ) -> Result<()> {
        let profile = if self.release { "release" } else { "dev" };
        let words = ["build", "-p", package, "--profile", profile];
        progress.demand(log, &mut workspace.cargo(&words))
    }
}
