import { chat } from '../../src/dialects/chat/chat.ts';
import type { Dialect } from '../../src/dialects/dialect.ts';

/** Every wire that the scripts in `tests/fixtures/streams` are printed on, by the name of its fixture files. */
export const dialects: ReadonlyMap<string, Dialect> = new Map([['chat', chat]]);
