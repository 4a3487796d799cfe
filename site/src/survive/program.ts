// What each rank of "Kill a rank" does: it trains with whoever is there. When a rank is gone, the
// others meet anew and go on with the weights of the one that has made the most steps. Runs in a
// page, a worker or Node; knows nothing of how it is shown.

import type { ProcessGroup } from "polyrank-web";
import { descend, fingerprint, gradient, WEIGHTS, type Example } from "../train/model";
import { isSameEverywhere } from "../train/program";
import type { Pr, Ticket } from "../rooms/room";
import { Meetings, type Member, type Quorum } from "./quorum";

const BATCH = 256;
const LEARNING_RATE = 0.05;
/** The least time for a step: the curve is there to be watched. */
const PACE_MS = 60;
/** How long a member is missed that lives and does nothing, in milliseconds. */
const TIMEOUT_MS = 10_000;
/** How long the members of a new quorum may take to meet: one may have gone meanwhile. */
const MEETING_MS = 5000;
/** What errors are followed by, so that one that stays does not fill the store. */
const PAUSE_MS = 100;
/** After so many steps it is compared whether all have the same weights. */
const COMPARED_EVERY = 20;

/** A step that all members have made. */
export interface Step {
  kind: "step";
  step: number;
  /** The mean over the batch. */
  loss: number;
  fingerprint: string;
  /** Whether all have the same bits, when that was compared last. */
  isSame: boolean | null;
}

/** The members are others from now on. */
export interface Change {
  kind: "change";
  quorum: Quorum;
  /** From which step they go on. */
  step: number;
  /** Those who are no longer there. */
  gone: Member[];
  /** Those who were not there before; the one who tells it, if that is new. */
  came: Member[];
  /** By rank: who takes its state from whom. */
  heals: { rank: number; from: number }[];
  /** How long this rank has not trained, in milliseconds; none: it had not begun. */
  pause: number | null;
}

/** What is told of training. */
export type Report = Step | Change;

/** How one is asked to stop. */
export interface Wish {
  /** In order: after the step that is under way, which all make. */
  leaves: boolean;
}

/**
 * Trains in the room of `ticket` until it is asked to leave.
 *
 * @throws if the store is gone. What becomes of other ranks is no error.
 */
export async function survive(
  pr: Pr,
  ticket: Ticket,
  me: Member,
  examples: readonly Example[],
  report: (report: Report) => void,
  wish: Wish,
): Promise<void> {
  const store = await pr.WebSocketStore.connect(ticket.url, { timeout: TIMEOUT_MS });
  const prefix = `rooms/${ticket.room}/survive`;
  const meetings = new Meetings(store, prefix, me);
  const group = await pr.ProcessGroup.join(new pr.PrefixStore(prefix, store), 0, 1, {
    enableReconfigure: true,
    groupName: me.id,
    timeout: TIMEOUT_MS,
  });
  const trainer = new Trainer(pr, group, examples, report);
  let [quorum, expected]: [Quorum | null, string[]] = [null, []];
  try {
    for (;;) {
      quorum = await meetings.join(quorum, expected);
      const { members, rank, number, knocks } = quorum;
      const address = `${ticket.url.replace(/\/$/, "")}/${meetings.place(number)}`;
      try {
        group.setTimeout(MEETING_MS);
        await group.configure(address, rank, members.length);
        group.setTimeout(TIMEOUT_MS);
        await trainer.heal(quorum);
        const hears = async () => rank === 0 && (await meetings.knocks()) !== knocks;
        const leaving = await trainer.train(quorum, hears, wish);
        if (leaving.includes(rank)) {
          return;
        }
        expected = members.filter((_, one) => !leaving.includes(one)).map(({ id }) => id);
      } catch (error) {
        expected = survivors(pr, error, members);
        await new Promise((resume) => setTimeout(resume, PAUSE_MS));
      }
    }
  } finally {
    group.abort();
  }
}

/** Those of the members who are not known to be gone. */
function survivors(pr: Pr, error: unknown, members: readonly Member[]): string[] {
  if (!(error instanceof pr.PolyrankError)) {
    throw error;
  }
  const failed = error instanceof pr.RankFailedError ? [error.rank] : [];
  const gone = error instanceof pr.RendezvousTimeoutError ? error.missingRanks : failed;
  return members.filter((_, rank) => !gone.includes(rank)).map(({ id }) => id);
}

/** What one rank has of the model, and how it goes on with it. */
class Trainer {
  #weights = new Float32Array(WEIGHTS);
  #step = 0;
  #isSame: boolean | null = null;
  /** The members who were told of last. */
  #known: readonly Member[] | null = null;
  /** When the last step was made. */
  #trainedAt: number | null = null;

  constructor(
    private readonly pr: Pr,
    private readonly group: ProcessGroup,
    private readonly examples: readonly Example[],
    private readonly report: (report: Report) => void,
  ) {}

  /** All get the state of the one that has made the most steps. */
  async heal(quorum: Quorum): Promise<void> {
    const { members, rank } = quorum;
    const steps = new Int32Array(members.length);
    steps[rank] = this.#step;
    await this.group.allreduce([steps]);
    const farthest = Math.max(...steps);
    const from = steps.indexOf(farthest);
    const behind = [...steps.keys()].filter((one) => steps[one]! < farthest);
    // Also where nobody is behind: two that were apart may have made as many steps. What comes is
    // kept when it has come as a whole.
    const weights = this.#weights.slice();
    await this.group.broadcast([weights], { rootRank: from });
    [this.#weights, this.#step, this.#isSame] = [weights, farthest, null];
    const [known, trainedAt] = [this.#known, this.#trainedAt];
    this.#known = members;
    const isIn = (some: readonly Member[], { id }: Member) => some.some((one) => one.id === id);
    this.report({
      kind: "change",
      quorum,
      step: farthest,
      gone: (known ?? []).filter((member) => !isIn(members, member)),
      // One that is new itself has seen nobody come.
      came: known ? members.filter((one) => !isIn(known, one)) : [members[rank]!],
      heals: behind.map((one) => ({ rank: one, from })),
      pause: trainedAt === null ? null : performance.now() - trainedAt,
    });
  }

  /** Trains until somebody knocks or leaves: the ranks that leave. */
  async train(
    { members, rank }: Quorum,
    hears: () => Promise<boolean>,
    wish: Wish,
  ): Promise<number[]> {
    const size = members.length;
    for (;;) {
      const began = performance.now();
      const batches = Math.ceil(this.examples.length / BATCH);
      const start = (this.#step % batches) * BATCH;
      const batch = this.examples.slice(start, start + BATCH);
      const mine = batch.filter((_, index) => index % size === rank);
      // Behind the gradient and the loss: whether somebody knocks, and for each rank whether it
      // leaves. So all know it at the same step.
      const sum = new Float32Array(WEIGHTS + 2 + size);
      sum.set(gradient(this.#weights, mine));
      sum[WEIGHTS + 1] = Number(await hears());
      sum[WEIGHTS + 2 + rank] = Number(wish.leaves);
      await this.group.allreduce([sum]);
      descend(this.#weights, sum, batch.length, LEARNING_RATE);
      this.#step += 1;
      this.#trainedAt = performance.now();
      if (this.#step % COMPARED_EVERY === 0) {
        this.#isSame = await isSameEverywhere(this.pr, this.#weights, this.group);
      }
      this.report({
        kind: "step",
        step: this.#step,
        loss: sum[WEIGHTS]! / batch.length,
        fingerprint: fingerprint(this.#weights),
        isSame: this.#isSame,
      });
      const leaving = [...members.keys()].filter((one) => sum[WEIGHTS + 2 + one]! > 0);
      if (sum[WEIGHTS + 1]! > 0 || leaving.length > 0) {
        return leaving;
      }
      const rest = PACE_MS - (performance.now() - began);
      await new Promise((resume) => setTimeout(resume, Math.max(0, rest)));
    }
  }
}
