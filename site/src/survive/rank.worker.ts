// A rank that survives others: a worker of its own, so that it goes on while its tab is in the
// background. Knows the program; nothing of how it is shown.

import digits from "../../../tests/data/digits.csv?url";
import { readExamples } from "../train/model";
import type { Ticket } from "../rooms/room";
import type { News, Order } from "./messages";
import { survive, type Wish } from "./program";
import type { Member } from "./quorum";

const wish: Wish = { leaves: false };
const tell = (news: News) => self.postMessage(news);

self.addEventListener("message", ({ data }: MessageEvent<Order>) => {
  if (data.kind === "leave") {
    wish.leaves = true;
  } else {
    void live(data.ticket, data.me);
  }
});

async function live(ticket: Ticket, me: Member): Promise<void> {
  try {
    // Not a static import: the package waits for its WebAssembly, and orders that came in the
    // meantime would find nobody listening.
    const pr = await import("polyrank-web");
    const response = await fetch(digits);
    const { training } = readExamples(await response.text());
    await survive(pr, ticket, me, training, tell, wish);
    tell({ kind: "left" });
  } catch (error) {
    tell({ kind: "failed", message: error instanceof Error ? error.message : String(error) });
  }
}
