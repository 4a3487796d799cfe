//! Groups that stand alone, over real processes of several languages: none has a default group.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use polyrank_tests::languages::{Language, Program, every_rank_says};

use Language::{Browser, Node, Python, Rust};

const JOINS: Program = Program { example: "joined", script: "joined/run" };

fn run(parts: &[(Language, u32)]) {
    every_rank_says(JOINS, parts, |_, _| "joined".to_owned());
}

#[test]
fn each_language_alone() {
    for world in [1, 2, 3, 5] {
        run(&[(Rust, world)]);
        run(&[(Python, world)]);
        run(&[(Node, world)]);
    }
    run(&[(Rust, 8)]);
}

#[test]
fn a_trainer_an_engine_and_a_viewer() {
    run(&[(Python, 1), (Rust, 1), (Node, 1)]);
    run(&[(Node, 2), (Python, 2), (Rust, 1)]);
    run(&[(Rust, 1), (Python, 1), (Browser, 1)]);
}
