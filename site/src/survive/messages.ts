// What a page and the worker that is a rank for it say to each other.

import type { Ticket } from "../rooms/room";
import type { Report } from "./program";
import type { Member } from "./quorum";

/** From the page. */
export type Order = { kind: "join"; ticket: Ticket; me: Member } | { kind: "leave" };

/** From the rank. */
export type News = Report | { kind: "left" } | { kind: "failed"; message: string };
