// text-embeddings-inference is in no package registry, so it is not fetched here.
import { spawnSync } from 'node:child_process';

const remedy =
  'build it of its repository, huggingface/text-embeddings-inference, by `cargo build --release -p text-embeddings-router --no-default-features --features http,candle`, and set TEI to the program';

export function setup() {
  const { TEI: program = 'text-embeddings-router' } = process.env;
  if (spawnSync(program, ['--version'], { stdio: 'ignore' }).status !== 0)
    throw new Error(`${program} does not run: ${remedy}`);
  return { TEI: program };
}
