// Run before the tests of this folder: the first build of llama-server takes minutes, which are not the tests' own.
import { llamaServer } from '../../../scripts/llama-server.mjs';

/** The tests take the one that was found here. */
export async function setup() {
  return { LLAMA_SERVER: await llamaServer() };
}
