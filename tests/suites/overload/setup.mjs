// The load comes from the benchmark's generator: one in JavaScript would be overloaded before the service is.
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { importSources } from '../../../scripts/bundle.mjs';

export async function setup() {
  const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..', '..', '..');
  const [{ compileTools }] = await importSources('bench/tools.ts');
  try {
    const { load, upstream } = compileTools(path.join(root, 'bench'));
    return { TOKENHOUSE_TEST_LOAD: load, TOKENHOUSE_TEST_UPSTREAM: upstream };
  } catch (error) {
    throw error.remedy === undefined ? error : new Error(`${error.message} ${error.remedy}`);
  }
}
