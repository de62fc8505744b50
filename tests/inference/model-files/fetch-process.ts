/** Fetches one file in a process of its own: `node fetch-process.js <url> <sha256> <folder>`; prints the result as JSON. */
import { fetchModelFile } from '../../../src/inference/model-files/fetch-model-file.ts';
import { closedEnvironment, sourceOf } from './surroundings.ts';

const [url = '', sha256 = '', directory = ''] = process.argv.slice(2);
const result = await fetchModelFile({ sources: [sourceOf(url)], sha256, directory, environment: closedEnvironment() });
process.stdout.write(JSON.stringify(result));
