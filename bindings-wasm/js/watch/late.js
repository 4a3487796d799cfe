// Says who has not come to a group for which this rank waits. Knows nothing of how ranks meet.

import { late, meetingName, meetingOver, seconds, takenBack } from "./words.js";
import { obstacleOf } from "./asking.js";
import { say } from "./say.js";

/** A call that waits for the other ranks of a group. */
export class Joining {
  #meeting;
  #began = performance.now();
  #next;
  #pause;
  #isLooking = false;
  /** What was found last. */
  #found = null;
  #hasSaid = false;
  #isOver = false;

  /** `meeting` knows who has come. */
  constructor(meeting, limitMs) {
    this.#meeting = meeting;
    this.#pause = limitMs;
    this.#next = limitMs;
  }

  /** The group out of which one is made; null: it is not made out of another. */
  get parent() {
    return this.#meeting.parent;
  }

  /** Says who is missing, if this rank has waited for long, and after twice as long again. */
  async look() {
    const waited = performance.now() - this.#began;
    if (this.#isLooking || waited < this.#next) return;
    this.#isLooking = true;
    this.#pause *= 2;
    this.#next = waited + this.#pause;
    try {
      const found = await this.#meeting.look();
      if (found === null) return;
      this.#found = found;
      this.#say(null, waited);
    } catch (error) {
      // Whoever has not reached the store yet is told of that by the store.
      if (this.#found !== null) this.#say(obstacleOf(error), waited);
    } finally {
      this.#isLooking = false;
    }
  }

  /** It has ended, well or not. */
  end(isJoined) {
    this.#isOver = true;
    if (!this.#hasSaid || !isJoined) return;
    say(takenBack(meetingOver(this.#found), performance.now() - this.#began));
  }

  /** At what this rank waits, in words: `name` and `call`, the names of what was called and of
   * the group; and for how long it `waits`, in ms. Null: that is not known. */
  async standing() {
    // Where the group goes, so does its store.
    const meeting = await this.#meeting.name().catch(() => null);
    if (meeting === null || this.#isOver) return null;
    const { group, call } = meeting;
    const waits = Math.round(performance.now() - this.#began);
    return { name: meetingName(meeting), call: [call.function, group], waits };
  }

  #say(obstacle, waited) {
    if (this.#isOver) return;
    say(late(this.#found, obstacle, seconds(waited)));
    this.#hasSaid = true;
  }
}
