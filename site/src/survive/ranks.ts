// The ranks that run in this tab, one worker each, as the page sees them. Knows what workers say;
// nothing of collectives.

import { computed, onBeforeUnmount, reactive } from "vue";
import { newRoomName, type Ticket } from "../rooms/room";
import type { News, Order } from "./messages";
import type { Change, Step } from "./program";

/** One rank of this tab. */
export interface LocalRank {
  id: string;
  state: "connecting" | "running" | "left" | "failed";
  /** Why it failed. */
  message: string;
  /** What the members are, as it heard last. */
  change: Change | null;
  step: Step | null;
  /** What it told, from its first quorum on. */
  changes: Change[];
  losses: (readonly [step: number, loss: number])[];
}

/** How many ranks one tab may hold. */
export const LOCAL_MAX = 8;
/** How many steps, and how many quorums, are shown. */
const SHOWN_STEPS = 2000;
const SHOWN_CHANGES = 200;

/** The ranks of this tab, and what can be asked of them. */
export function useRanks() {
  const ranks = reactive<LocalRank[]>([]);
  const workers = new Map<string, Worker>();

  function add(ticket: Ticket, name: string): void {
    const worker = new Worker(new URL("./rank.worker.ts", import.meta.url), { type: "module" });
    const id = newRoomName();
    ranks.push({
      id,
      state: "connecting",
      message: "",
      change: null,
      step: null,
      changes: [],
      losses: [],
    });
    const one = ranks.at(-1)!;
    workers.set(id, worker);
    const listen = (news: News) => {
      hear(one, news);
      if (one.state === "left" || one.state === "failed") {
        end(id);
      }
    };
    worker.addEventListener("message", ({ data }: MessageEvent<News>) => listen(data));
    worker.addEventListener("error", ({ message }) => {
      listen({ kind: "failed", message: message ?? "its worker did not start" });
    });
    send(id, { kind: "join", ticket: { ...ticket }, me: { id, name } });
  }

  function send(id: string, order: Order): void {
    workers.get(id)?.postMessage(order);
  }

  function end(id: string): void {
    workers.get(id)?.terminate();
    workers.delete(id);
  }

  /** Leaves in good order. */
  function leave({ id }: LocalRank): void {
    send(id, { kind: "leave" });
  }

  /** Ends it at once, as closing its tab would: it says nothing to the others. */
  function kill({ id }: LocalRank): void {
    end(id);
    ranks.splice(
      ranks.findIndex((one) => one.id === id),
      1,
    );
  }

  function clear(): void {
    workers.forEach((worker) => worker.terminate());
    workers.clear();
    ranks.splice(0);
  }

  const isFull = computed(() => {
    const living = ranks.filter(({ state }) => state === "connecting" || state === "running");
    return living.length >= LOCAL_MAX;
  });
  onBeforeUnmount(clear);
  return { ranks, isFull, add, leave, kill, clear };
}

/** Notes what a rank tells. */
function hear(one: LocalRank, news: News): void {
  switch (news.kind) {
    case "change":
      one.state = "running";
      one.change = news;
      one.changes.push(news);
      one.changes.splice(0, one.changes.length - SHOWN_CHANGES);
      // What was compared last was of other members.
      one.step = one.step && { ...one.step, isSame: null };
      break;
    case "step":
      one.step = news;
      one.losses.push([news.step, news.loss]);
      one.losses.splice(0, one.losses.length - SHOWN_STEPS);
      break;
    case "left":
      one.state = "left";
      break;
    case "failed":
      one.state = "failed";
      one.message = news.message;
  }
}
