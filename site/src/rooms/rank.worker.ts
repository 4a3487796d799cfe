// A rank: a worker of its own, so that it goes on while its tab is in the background. Knows rooms
// and programs; nothing of how they are shown.

import digits from "../../../tests/data/digits.csv?url";
import { takeTurns, type Wishes } from "../allreduce/program";
import { readExamples } from "../train/model";
import { train, type Progress } from "../train/program";
import type { News, Order, Phase, Program } from "./messages";
import { Room, RoomIsFull, type Pr, type Ticket } from "./room";

/** How long a rank is missed before its group is given up, in milliseconds. */
const TIMEOUT_MS = 60_000;

let wishes: Wishes | undefined;
let leaving: AbortController | undefined;
let restart: (() => Promise<void>) | undefined;

const tell = (news: News) => self.postMessage(news);

self.addEventListener("message", ({ data }: MessageEvent<Order>) => {
  switch (data.kind) {
    case "join":
      wishes = data.wishes;
      void live(data.program, data.ticket);
      break;
    case "wish":
      wishes = data.wishes;
      break;
    case "leave":
      leaving?.abort(new Error("left"));
      break;
    case "startAgain":
      void restart?.();
      break;
  }
});

/** Joins the room's group and runs the program in it, until it ends one way or another. */
async function live(program: Program, ticket: Ticket): Promise<void> {
  const { signal } = (leaving = new AbortController());
  let during: Phase = "connecting";
  tell({ kind: "connecting" });
  // Not a static import: the package waits for its WebAssembly, and orders that came in the
  // meantime would find nobody listening.
  const pr = await import("polyrank-web");
  try {
    const room = await Room.enter(pr, ticket);
    const again = (generation: number) => async () => {
      await room.startAgain(generation);
      await live(program, ticket);
    };
    const place = await room
      .join(signal, (missing, size) => tell({ kind: "waiting", missing, size }))
      .catch((error: unknown) => {
        if (error instanceof RoomIsFull) {
          restart = again(error.generation);
        }
        throw error;
      });
    restart = again(place.generation);
    const { rank, size, store } = place;
    tell({ kind: "meeting", rank, size });
    await pr.initProcessGroup({ store, rank, worldSize: size, timeout: TIMEOUT_MS, signal });
    during = "running";
    tell({ kind: "running", rank, size });
    await run(pr, program, signal);
    await pr.destroyProcessGroup();
    tell({ kind: signal.aborted ? "left" : "done" });
  } catch (error) {
    if (pr.isInitialized()) {
      await pr.abortProcessGroup();
    }
    const failedRank = error instanceof pr.RankFailedError ? error.rank : null;
    tell(report(error, signal, during, failedRank));
  }
}

async function run(pr: Pr, program: Program, signal: AbortSignal): Promise<void> {
  if (program === "train") {
    const response = await fetch(digits);
    const examples = readExamples(await response.text());
    const show = (progress: Progress) => tell({ kind: "progress", progress });
    await train(pr, examples, show, () => signal.aborted);
  } else {
    await takeTurns(
      pr,
      () => wishes!,
      (turn) => tell({ kind: "turn", turn }),
      () => signal.aborted,
    );
  }
}

function report(
  error: unknown,
  signal: AbortSignal,
  during: Phase,
  failedRank: number | null,
): News {
  if (signal.aborted) {
    return { kind: "left" };
  }
  const message = error instanceof Error ? error.message : String(error);
  if (error instanceof RoomIsFull) {
    return { kind: "full", message };
  }
  return { kind: "failed", message, during, failedRank };
}
