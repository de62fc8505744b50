/**
 * What a machine that loses its power may leave of the files of SQLite: after each of their writes, with the last one torn, with all that
 * was not synced lost, and with one of those writes lost and later ones kept. From each, the next process has what was acknowledged, goes
 * on, and comes to the rows of a run without faults. `strace` shows the writes of a real process; the images are made from them.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { test } from 'node:test';
import {
  closeConnection,
  openConnection,
  refuseDamaged,
  type Connection,
} from '../../../src/store/sqlite/connection.ts';
import { kyselyOn } from '../../../src/store/sqlite/dialect.ts';
import { migrate } from '../../../src/store/migrations/migrate.ts';
import { verifyLedger } from '../../../src/store/verify/verify.ts';
import { MemoryBalances, temporaryFolder } from '../../store/fixture.ts';
import { openInProcess } from '../../store/sqlite-in-process.ts';
import { ask, Stage, type Story } from '../../store/stage.ts';
import { rowsIn } from '../../store/story-rows.ts';
import { stories } from '../../store/stories.ts';
import { built } from '../../support/built.ts';
import { canCause } from '../../support/machine.ts';

/** `all`: every image. Otherwise some of each story, evenly spread. */
const imagesMax = process.env['TOKENHOUSE_TEST_NTH_CALL'] === 'all' ? Infinity : 24;
const tag = 'ab0001';
/** The file in which the process notes its steps. */
const notes = 'notes';
const child = built('tests/store/play-story.ts');

type Call =
  | { readonly kind: 'write'; readonly file: string; readonly bytes: Buffer; readonly offset: number }
  | { readonly kind: 'truncate'; readonly file: string; readonly length: number }
  | { readonly kind: 'sync' | 'remove'; readonly file: string };

/** The calls of a process that change files, in the order in which they began. All texts are in hex. */
function callsIn(trace: string): readonly Call[] {
  const decoded = (hex: string): Buffer => Buffer.from(hex.replaceAll('\\x', ''), 'hex');
  return trace.split('\n').flatMap((line): readonly Call[] => {
    const [, name, path = '', rest = ''] = /\b([a-z0-9]+)\((?:\d+<|")((?:\\x[0-9a-f]{2})+)[>"](.*)/.exec(line) ?? [];
    const file = basename(decoded(path).toString());
    switch (name) {
      case 'pwrite64': {
        const [, bytes = '', offset] = /^, "((?:\\x[0-9a-f]{2})*)", \d+, (\d+)/.exec(rest)!;
        return [{ kind: 'write', file, bytes: decoded(bytes), offset: Number(offset) }];
      }
      case 'ftruncate':
        return [{ kind: 'truncate', file, length: Number(/^, (\d+)/.exec(rest)![1]) }];
      case 'fsync':
      case 'fdatasync':
        return [{ kind: 'sync', file }];
      case 'unlink':
        return [{ kind: 'remove', file }];
      case undefined:
      default:
        return [];
    }
  });
}

/** The content of files by their names; a missing one does not exist. */
type Files = ReadonlyMap<string, Buffer>;

function after(files: Files, call: Call): Files {
  const before = files.get(call.file) ?? Buffer.alloc(0);
  switch (call.kind) {
    case 'sync':
      return files;
    case 'remove':
      return new Map([...files].filter(([name]) => name !== call.file));
    case 'truncate': {
      const cut = Buffer.alloc(call.length);
      before.copy(cut);
      return new Map([...files, [call.file, cut]]);
    }
    case 'write': {
      const written = Buffer.alloc(Math.max(before.length, call.offset + call.bytes.length));
      before.copy(written);
      call.bytes.copy(written, call.offset);
      return new Map([...files, [call.file, written]]);
    }
  }
}

interface Image {
  readonly what: string;
  readonly files: Files;
  /** How many steps of the story had been acknowledged. */
  readonly steps: number;
}

const ways = ['torn', 'done', 'unsynced lost', 'one lost'] as const;

/** The images after each call, of which `isWanted` chooses some by their number. */
function* imagesOf(start: Files, calls: readonly Call[], isWanted: (number: number) => boolean): Generator<Image> {
  let [whole, number, steps] = [start, 0, 0];
  /** What surely is there, and what was written since. */
  let synced = start;
  let loose: readonly Call[] = [];
  for (const [index, call] of calls.entries()) {
    if (call.file === notes) {
      if (call.kind === 'truncate') steps = call.length;
      continue;
    }
    if (call.file !== 'story.db' && call.file !== 'story.db-wal') continue;
    const before = whole;
    whole = after(whole, call);
    if (call.kind === 'sync') {
      synced = loose.filter(({ file }) => file === call.file).reduce(after, synced);
      loose = loose.filter(({ file }) => file !== call.file);
    } else loose = [...loose, call];
    for (const way of ways) {
      if (way === 'torn' ? call.kind !== 'write' : way === 'one lost' && loose.length < 2) continue;
      if (!isWanted(number++)) continue;
      const what = `call ${index}, ${way}`;
      if (way === 'torn' && call.kind === 'write') {
        const torn = { ...call, bytes: call.bytes.subarray(0, Math.floor(call.bytes.length / 2)) };
        yield { what, files: after(before, torn), steps };
      } else if (way === 'done') yield { what, files: whole, steps };
      else yield { what, files: way === 'one lost' ? loose.slice(1).reduce(after, synced) : synced, steps };
    }
  }
}

/** In memory where there is such a folder: it is only read, and what is lost is already lost. */
const imageFolder = (): string =>
  mkdtempSync(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'tokenhouse-image-'));

async function assertGoesOn(story: Story, image: Image, rows: readonly string[]): Promise<void> {
  const folder = imageFolder();
  for (const [name, bytes] of image.files) writeFileSync(join(folder, name), bytes);
  const file = join(folder, 'story.db');
  const free = new MemoryBalances();
  let isFirst = true;
  const met = (connection: Connection): Connection => {
    if (isFirst) refuseDamaged(connection, file, 'thorough');
    isFirst = false;
    return connection;
  };
  const { store, db, close } = openInProcess(file, free, { met });
  try {
    assert.deepEqual((await verifyLedger(db, { owned: false })).differences, [], 'as it was found');
    if (story.isOfProcess === true) return;
    const stage = new Stage(store, free, tag);
    for (const [index, step] of story.steps.slice(image.steps).entries())
      await ask(step, stage, { isAgain: index === 0 });
    assert.deepEqual(await rowsIn(db, tag), rows);
    assert.deepEqual((await verifyLedger(db, { owned: false })).differences, [], 'at the end');
  } finally {
    close();
    rmSync(folder, { recursive: true });
  }
}

for (const story of stories)
  test(story.name, async (t) => {
    if (!canCause(t, 'strace')) return;
    const folder = temporaryFolder(t);
    const file = join(folder, 'story.db');
    const connection = openConnection(file);
    await migrate(kyselyOn(connection), 'sqlite');
    const free = new MemoryBalances();
    const opened = openInProcess(file, free);
    const stage = new Stage(opened.store, free, tag);
    for (const step of story.before) await ask(step, stage);
    opened.close();
    closeConnection(connection);
    const start: Files = new Map([['story.db', readFileSync(file)]]);

    const trace = join(folder, 'trace');
    const words = ['-f', '-qq', '-y', '-xx', '-s', '1000000', '-e', 'trace=pwrite64,ftruncate,fsync,fdatasync,unlink'];
    const command = [process.execPath, child, file, story.name, tag, join(folder, notes)];
    const ran = spawnSync('strace', [...words, '-o', trace, ...command]);
    assert.equal(ran.status, 0, String(ran.stderr));
    const ended = openInProcess(file, new MemoryBalances());
    const rows = await rowsIn(ended.db, tag);
    ended.close();

    const calls = callsIn(readFileSync(trace, 'latin1'));
    let count = 0;
    for (const _ of imagesOf(start, calls, () => count++ < 0)) assert.fail('none is wanted');
    const stride = Math.max(1, Math.ceil(count / imagesMax));
    let tried = 0;
    for (const image of imagesOf(start, calls, (number) => number % stride === 0)) {
      await assertGoesOn(story, image, rows).catch((error: unknown) => assert.fail(`${image.what}: ${String(error)}`));
      tried++;
    }
    t.diagnostic(`${calls.length} calls, ${count} images, ${tried} tried`);
  });
