// A rank that a launcher starts.

import { launched } from "../scenarios/groups.js";

await launched();
