// Programs of earlier revisions, built from this repository's own history as `npm run build` builds them there: a minute or two each,
// and once, since they are kept among the caches. And the programs of a real PostgreSQL.
//
// TOKENHOUSE_UPGRADE_FROM names the revisions (tags or commits, with commas between them). Otherwise it is the newest tag, and where
// there is none the first revision whose databases are upgraded.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { cacheFolder } from '../../../scripts/cache-folder.mjs';
import { postgresBinaries } from '../../../scripts/postgres.mjs';
import { root, runNpm, say } from '../../../scripts/setup.mjs';

/** The first with `100-baseline`. */
const pinned = ['73c9b2e9'];

/** `TOKENHOUSE_TEST_EARLIER` lists the revisions, and where the program of each is: `revision=folder`, with commas between them. */
export function setup() {
  const programs = revisions().map((revision) => [revision, built(revision)]);
  return {
    TOKENHOUSE_TEST_EARLIER: programs.map(([revision, folder]) => `${revision}=${folder}`).join(','),
    TOKENHOUSE_TEST_POSTGRES: postgresBinaries(),
  };
}

function revisions() {
  const named = process.env.TOKENHOUSE_UPGRADE_FROM;
  if (named) return named.split(',').map((one) => one.trim());
  const newest = git('describe', '--tags', '--abbrev=0', 'HEAD^');
  return newest === undefined ? pinned : [newest];
}

function built(revision) {
  const commit = git('rev-parse', '--verify', '--quiet', `${revision}^{commit}`);
  if (commit === undefined)
    throw new Error(
      `there is no revision ${revision} in this clone. It needs the whole history: git fetch --unshallow --tags; or name another one: TOKENHOUSE_UPGRADE_FROM=TAG`,
    );
  const folder = path.join(cacheFolder('earlier-programs'), commit);
  if (fs.existsSync(folder)) return folder;
  say(`upgrade  building ${revision} below ${folder}, once`);
  const making = fs.mkdtempSync(`${folder}.`);
  try {
    const archive = path.join(making, 'source.tar');
    if (git('archive', `--output=${archive}`, commit) === undefined) throw new Error(`git cannot archive ${revision}`);
    run('tar', ['-xf', archive], making);
    fs.rmSync(archive);
    const { status } = runNpm(['run', 'build'], { cwd: making });
    if (status !== 0) throw new Error(`${revision} cannot be built; the npm registry must be reachable`);
    fs.renameSync(making, folder);
  } finally {
    fs.rmSync(making, { recursive: true, force: true });
  }
  return folder;
}

/** Undefined: it has failed. */
function git(...words) {
  const { status, stdout } = spawnSync('git', words, { cwd: root, encoding: 'utf8' });
  return status === 0 ? stdout.trim() : undefined;
}

function run(command, words, cwd) {
  const { status, error } = spawnSync(command, words, { cwd, stdio: ['ignore', 2, 2] });
  if (status !== 0) throw new Error(`${command} failed${error ? ` (${error.message})` : ''}`);
}
