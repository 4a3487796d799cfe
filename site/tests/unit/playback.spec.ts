// Playback of every schedule of the core, in the WebAssembly module: what is drawn keeps the
// contract that the core states for the collective.

import { expect, test } from "@playwright/test";
import { collectives, schedule } from "../../../bindings-wasm/js/drawing.js";
import type { Drawing } from "../../../bindings-wasm/js/drawing.js";
import { beginOf, duration, endOf, play, stateAt } from "../../src/schedule/playback";

const every = collectives().flatMap(({ name, algorithms }) =>
  algorithms.map((algorithm) => ({ collective: name, algorithm: algorithm.name })),
);

/** One step fewer: the result cannot be right. */
function withoutLastMessage(drawing: Drawing): Drawing {
  const last = play(drawing).messages.at(-1)!;
  const ranks = drawing.ranks.map((part, rank) => {
    const steps = part.steps.map((step) =>
      rank === last.receiver && step.partner && step.round === last.round
        ? { ...step, into: null }
        : step,
    );
    return { ...part, steps };
  });
  return { ...drawing, ranks };
}

test("there are the collectives that there should be", () => {
  expect(collectives().map(({ name }) => name)).toContain("allreduce");
  expect(every.length).toBeGreaterThan(15);
});

for (const { collective, algorithm } of every) {
  test(`${collective} by ${algorithm} ends as promised`, () => {
    for (const ranks of [1, 2, 3, 4, 5, 8, 13]) {
      for (const root of new Set([0, ranks - 1])) {
        const drawing = schedule(collective, algorithm, ranks, root, 1 << 20);
        const playback = play(drawing);
        expect(playback.keepsContract, `${ranks} ranks, root ${root}`).toBe(true);
        const received = drawing.ranks.flatMap((part) =>
          part.steps.filter(({ kind }) => kind === "recv" || kind === "recvReduce"),
        );
        expect(playback.messages.length).toBe(received.length);
      }
    }
  });
}

test("a schedule that lacks a step is seen to break its contract", () => {
  const drawing = schedule("allgather", "ring", 4, 0, 100);
  expect(play(withoutLastMessage(drawing)).keepsContract).toBe(false);
});

test("both clocks begin with the start and end with the result", () => {
  const playback = play(schedule("allreduce", "halving_doubling", 4, 0, 1 << 20));
  for (const clock of ["rounds", "seconds"] as const) {
    const total = duration(playback, clock);
    const first = stateAt(playback, clock, 0).map((own) => own[0]!.cells);
    const counts = first.map((cells) => cells.map((cell) => cell.length));
    expect(counts).toEqual(Array.from({ length: 4 }, () => [1, 1, 1, 1]));
    const last = stateAt(playback, clock, total).map((own) => own[0]!.cells);
    expect(last.flat().every((cell) => new Set(cell.map(([rank]) => rank)).size === 4)).toBe(true);
    for (const message of playback.messages) {
      expect(beginOf(message, clock)).toBeGreaterThanOrEqual(0);
      expect(beginOf(message, clock)).toBeLessThan(endOf(message, clock));
      expect(endOf(message, clock)).toBeLessThanOrEqual(total);
    }
  }
});
