#!/usr/bin/env node
// The command `tokenhouse`; alone it runs the service. Plain JavaScript, so that it can explain a clone that is not built yet.
import { launch } from '../scripts/launch.mjs';

const given = process.argv.slice(2);
await launch(given.length === 0 ? ['serve'] : given);
