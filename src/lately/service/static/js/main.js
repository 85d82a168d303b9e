// The entry point: loads the cards, which listen to the state, then starts the updates of the state.

import "./range.js";
import "./summary.js";
import "./hot_keys.js";
import "./trend.js";
import "./quantiles.js";
import "./alerts.js";
import "./ask.js";
import "./sites.js";
import "./totals.js";
import "./bytes.js";
import "./processing.js";
import { start } from "./live.js";

start();
