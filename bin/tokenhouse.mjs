#!/usr/bin/env node
// The command `tokenhouse`. Plain JavaScript, so that it can explain a clone that is not built yet.
import { launch } from '../scripts/launch.mjs';

await launch(process.argv.slice(2));
