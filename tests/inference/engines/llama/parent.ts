import { createLlamaEngine } from '../../../../src/inference/engines/llama/engine.ts';
import { chat, never } from './support.ts';
import { pull } from '../pull.ts';

/** A process of its own that owns an engine, prints the child's pid while the child reads a long prompt, and waits to be killed. */
const engine = createLlamaEngine({
  name: 'tiny',
  modelFile: Promise.resolve(process.argv[2] ?? ''),
  contextLength: 4096,
  slots: 1,
  defaultSystem: 'template',
  log: () => {},
});
await engine.ready;
const stream = pull(engine, chat('a b c d '.repeat(400)), never);
await stream.next();
console.log(String(engine.pid));
await stream.next();
