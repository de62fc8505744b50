/** A process that plays a story on a file and notes each step that was answered. Started by power-loss.test.ts. */
import { closeSync, ftruncateSync, openSync } from 'node:fs';
import { openSqliteStore } from '../../src/store/sqlite/store.ts';
import { MemoryBalances } from './fixture.ts';
import { ask, Stage } from './stage.ts';
import { stories } from './stories.ts';

const [, , file, name, tag, notes] = process.argv as [string, string, string, string, string, string];
const story = stories.find((one) => one.name === name)!;
const free = new MemoryBalances();
const store = await openSqliteStore({
  file,
  free,
  onFatal: (error) => {
    throw error;
  },
});
const stage = new Stage(store, free, tag);
// Seen among the calls of SQLite, in their order.
const noted = openSync(notes, 'w');
for (const [index, step] of story.steps.entries()) {
  await ask(step, stage);
  ftruncateSync(noted, index + 1);
}
closeSync(noted);
await store.close();
