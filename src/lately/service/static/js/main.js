// Puts the page together: each card listens to the state, then the state starts to live.

import "./range.js";
import "./facts.js";
import "./hot.js";
import "./trend.js";
import "./quantiles.js";
import "./alerts.js";
import "./ask.js";
import "./sites.js";
import "./totals.js";
import "./bytes.js";
import "./work.js";
import { start } from "./live.js";

start();
