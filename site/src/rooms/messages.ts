// What a page and the worker that is a rank for it say to each other.

import type { Turn, Wishes } from "../allreduce/program";
import type { Progress } from "../train/program";
import type { Ticket } from "./room";

/** What the ranks of a room do. */
export type Program = "allreduce" | "train";

/** From the page. */
export type Order =
  | { kind: "join"; program: Program; ticket: Ticket; wishes: Wishes }
  | { kind: "wish"; wishes: Wishes }
  | { kind: "leave" }
  | { kind: "startAgain" };

/** From the rank. */
export type News =
  | { kind: "connecting" }
  | { kind: "waiting"; missing: number; size: number }
  | { kind: "full"; message: string }
  | { kind: "meeting"; rank: number; size: number }
  | { kind: "running"; rank: number; size: number }
  | { kind: "turn"; turn: Turn }
  | { kind: "progress"; progress: Progress }
  | { kind: "done" }
  | { kind: "left" }
  | { kind: "failed"; message: string; during: Phase; failedRank: number | null };

/** How far a rank has come. */
export type Phase = "connecting" | "running";
