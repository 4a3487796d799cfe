//! `cargo xtask`: the task runner. One file per task; this one only chooses.

mod bench_check;
mod churn;
mod codegen;
mod demo;
mod native;
mod node;
mod progress;
mod protobuf;
mod public_api;
mod python;
mod setup;
mod site;
mod test;
mod trace_page;
mod wasm;
mod wasm_compiler;
mod wasm_order;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// polyrank's task runner.
#[derive(Parser)]
#[command(name = "cargo xtask", about = "polyrank's task runner", long_about = None)]
struct CommandLine {
    #[command(subcommand)]
    task: Task,
}

/// What can be asked for.
#[derive(Subcommand)]
enum Task {
    /// Prepare what the other tasks need: Python environment, Node packages, Debian packages
    Setup,
    /// Train on real data with a rank in each language
    Demo(demo::Arguments),
    /// Write the files that are generated from idl/
    Codegen(codegen::Arguments),
    /// Print an item of the model that the IDL describes, as JSON
    Model(codegen::ModelArguments),
    /// Write the list of what a Rust user can name in the crate `polyrank`
    PublicApi(public_api::Arguments),
    /// Build the native half of the Python package, and install the package into .venv
    Python(native::Arguments),
    /// Build the native half of the Node package
    Node(native::Arguments),
    /// Build the WebAssembly of the browser package
    Wasm(wasm::Arguments),
    /// Build the documentation with its demos and serve it, with a store server beside it
    Site(site::Arguments),
    /// Kill, stop, slow and add replicas that train together, and see that training goes on
    Churn(churn::Arguments),
    /// Compare the speed of this checkout with that of an earlier revision
    BenchCheck(bench_check::Arguments),
    /// Check and test everything
    Test(test::Arguments),
}

fn main() -> ExitCode {
    let outcome = match CommandLine::parse().task {
        Task::Setup => setup::run(),
        Task::Demo(arguments) => demo::run(&arguments),
        Task::Codegen(arguments) => codegen::run(&arguments),
        Task::Model(arguments) => codegen::model(&arguments),
        Task::PublicApi(arguments) => public_api::run(&arguments),
        Task::Python(arguments) => python::run(&arguments),
        Task::Node(arguments) => node::run(&arguments),
        Task::Wasm(arguments) => wasm::run(&arguments),
        Task::Site(arguments) => site::run(&arguments),
        Task::Churn(arguments) => churn::run(&arguments),
        Task::BenchCheck(arguments) => bench_check::run(&arguments),
        Task::Test(arguments) => test::run(&arguments),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
