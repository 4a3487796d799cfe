// The address of a room, in that of the page. Pure but for what it is given.

import type { Ticket } from "./room";

/** Where `cargo xtask site` puts the store. */
const STORE_PORT = 29510;
export const SIZE_MIN = 1;
export const SIZE_MAX = 8;

/** The store beside the server of this page. */
export function defaultStore(hostname: string): string {
  const host = hostname === "localhost" || hostname === "" ? "127.0.0.1" : hostname;
  return `ws://${host}:${STORE_PORT}/`;
}

/** What a page's address says of a room; the room is empty if it names none. */
export function readAddress(address: URL): Ticket {
  const { searchParams, hostname } = address;
  const size = Number(searchParams.get("size") ?? 3);
  return {
    url: searchParams.get("store") ?? defaultStore(hostname),
    room: searchParams.get("room") ?? "",
    size: Number.isInteger(size) ? Math.max(SIZE_MIN, Math.min(SIZE_MAX, size)) : 3,
  };
}

/** The page's address for a room. */
export function writeAddress(address: URL, ticket: Ticket): string {
  const result = new URL(address);
  result.search = "";
  result.hash = "";
  result.searchParams.set("room", ticket.room);
  result.searchParams.set("size", String(ticket.size));
  if (ticket.url !== defaultStore(address.hostname)) {
    result.searchParams.set("store", ticket.url);
  }
  return result.href;
}
