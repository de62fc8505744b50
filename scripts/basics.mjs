// What scripts and the command need before anything is installed: the repository's folder, output, and a check of Node's version.
// Uses only Node's own modules.
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/** The folder of the repository; in the npm package, of the package. */
export const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));

export function say(line) {
  process.stderr.write(`${line}\n`);
}

export function fail(line) {
  say(line);
  process.exit(1);
}

/** Whether a script was started itself instead of being imported by another. */
export function isStarted(moduleUrl) {
  return (
    process.argv[1] !== undefined && fs.realpathSync(process.argv[1]) === fs.realpathSync(fileURLToPath(moduleUrl))
  );
}

/** Whether a process with this id runs on this computer, possibly of another user. */
export function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code !== 'ESRCH';
  }
}

/** Why this version of Node cannot run Tokenhouse; `undefined` if it can. */
export function nodeProblem(version) {
  const [major, minor] = version.split('.').map(Number);
  if (major > 20 || (major === 20 && minor >= 19)) return undefined;
  return `Tokenhouse needs Node 20.19 or later, and this is ${version}. Install a current one (https://nodejs.org, or: nvm install 24) and start again.`;
}

/** A remark about a version that works. */
export function nodeRemark(version) {
  if (Number(version.split('.')[0]) !== 20) return undefined;
  return `note     Node ${version} works, but Node 20 is past its end of life and gets no security fixes; Node 24 is the better choice`;
}

/** A script's description of itself: the comment that it begins with. */
export function aboutOf(moduleUrl) {
  const [about] = fs.readFileSync(fileURLToPath(moduleUrl), 'utf8').split(/^(?!\/\/)/m, 1);
  return about.replace(/^\/\/ ?/gm, '');
}
