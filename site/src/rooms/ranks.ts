// The ranks that run in this tab, one worker each, as a page sees them. Knows what workers say;
// nothing of collectives.

import { computed, onBeforeUnmount, reactive } from "vue";
import type { Turn, Wishes } from "../allreduce/program";
import type { Progress } from "../train/program";
import type { News, Order, Program } from "./messages";
import type { Ticket } from "./room";

/** What a rank is about. */
export type State = Exclude<News, { kind: "turn" } | { kind: "progress" }>;

/** One rank of this tab. */
export interface LocalRank {
  id: number;
  state: State;
  /** Its number and how many there are, once it has one. */
  rank: number | null;
  size: number;
  wishes: Wishes;
  turn: Turn | null;
  /** What it told about training, from the first epoch on. */
  history: Progress[];
}

/** How many ranks one tab may hold. */
export const LOCAL_MAX = 8;

/** The ranks of this tab, and what can be asked of them. */
export type LocalRanks = ReturnType<typeof useRanks>;

/** The ranks of this tab; they end with the component. */
export function useRanks(program: Program, newWishes: () => Wishes) {
  const ranks = reactive<LocalRank[]>([]);
  const workers = new Map<number, Worker>();
  let next = 0;

  function send(one: LocalRank, order: Order): void {
    workers.get(one.id)?.postMessage(order);
  }

  function add(ticket: Ticket): void {
    const worker = new Worker(new URL("./rank.worker.ts", import.meta.url), { type: "module" });
    const id = next++;
    ranks.push(newRank(id, ticket.size, newWishes()));
    const one = ranks.at(-1)!;
    workers.set(id, worker);
    worker.addEventListener("message", ({ data }: MessageEvent<News>) => hear(one, data));
    worker.addEventListener("error", ({ message }) => {
      hear(one, { kind: "failed", message, during: "connecting", failedRank: null });
    });
    send(one, { kind: "join", program, ticket, wishes: plain(one.wishes) });
  }

  /** Tells the rank what its user wants now. */
  function wish(one: LocalRank): void {
    send(one, { kind: "wish", wishes: plain(one.wishes) });
  }

  /** Leaves in good order; the others hear of it. */
  function leave(one: LocalRank): void {
    send(one, { kind: "leave" });
  }

  /** Lets every rank of this tab join the room's next group. */
  function startAgain(): void {
    for (const one of ranks) {
      one.state = { kind: "connecting" };
      one.rank = null;
      send(one, { kind: "startAgain" });
    }
  }

  /** Ends all workers immediately, as closing the tab would. */
  function clear(): void {
    workers.forEach((worker) => worker.terminate());
    workers.clear();
    ranks.splice(0);
  }

  const first = computed(() => ranks.find(({ state }) => state.kind !== "left") ?? null);
  onBeforeUnmount(clear);
  return { ranks, first, add, wish, leave, startAgain, clear };
}

function newRank(id: number, size: number, wishes: Wishes): LocalRank {
  const state: State = { kind: "connecting" };
  return { id, state, rank: null, size, wishes, turn: null, history: [] };
}

/** Notes what a rank tells. */
function hear(one: LocalRank, news: News): void {
  switch (news.kind) {
    case "turn":
      one.turn = news.turn;
      break;
    case "progress":
      one.history.push(news.progress);
      break;
    default:
      one.state = news;
      if (news.kind === "meeting" || news.kind === "running") {
        one.rank = news.rank;
        one.size = news.size;
      }
      if (news.kind === "running") {
        one.turn = null;
        one.history = [];
      }
  }
}

/** What can be sent to a worker: reactive objects cannot. */
function plain({ values, operator, payload }: Wishes): Wishes {
  return {
    values: [...values],
    operator: operator && { ...operator },
    payload: payload && { ...payload },
  };
}
