// Builds the web console and the documentation, which the account host serves but nothing waits for, in a process beside the
// service that `npm start` has started.
import { spawn } from 'node:child_process';
import os from 'node:os';
import { fileURLToPath } from 'node:url';
import { announceConsole, buildConsoleOrSay } from './console.mjs';
import { areDocsStale, buildDocsOrSay } from './docs-site.mjs';
import { isStarted } from './setup.mjs';

/** Builds when necessary. The process ends with this one at the latest. */
export function buildBeside() {
  const isConsoleStale = announceConsole();
  if (!isConsoleStale && !areDocsStale()) return;
  const child = spawn(process.execPath, [fileURLToPath(import.meta.url)], { stdio: ['ignore', 2, 2] });
  child.unref();
  process.once('exit', () => child.kill());
}

if (isStarted(import.meta.url)) {
  // The service has priority.
  os.setPriority(os.constants.priority.PRIORITY_LOW);
  await buildConsoleOrSay();
  await buildDocsOrSay();
}
