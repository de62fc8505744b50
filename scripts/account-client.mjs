// Types of the account API, made from its own document, for the tests that use it through a generated client: what no longer fits
// the document fails `npm run check`.
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { importSources } from './bundle.mjs';
import { clientTests, installClients } from './clients.mjs';
import { isStarted, root, setup } from './setup.mjs';

/** Writes the types for the tests; call it after `setup`. */
export async function writeAccountClient() {
  installClients();
  await writeAccountTypes({
    generatorIn: path.join(root, clientTests),
    file: path.join(root, clientTests, 'account-api.ts'),
  });
}

/** Writes types of the API into `file`, with the generator installed in a folder. */
export async function writeAccountTypes({ generatorIn, file }) {
  const [{ accountDocument }, { accountRoutes }] = await importSources(
    'src/account-api/openapi-document.ts',
    'src/account-api/routes.ts',
  );
  const generator = path.join(generatorIn, 'node_modules', 'openapi-typescript', 'dist', 'index.mjs');
  const { default: openapiTS, astToString } = await import(pathToFileURL(generator).href);
  const facts = { version: '0.0.0', routes: accountRoutes, accountUrl: 'http://localhost:8081' };
  const text = astToString(await openapiTS(JSON.stringify(accountDocument(facts))));
  if (fs.existsSync(file) && fs.readFileSync(file, 'utf8') === text) return;
  fs.writeFileSync(file, text);
}

if (isStarted(import.meta.url)) {
  setup();
  await writeAccountClient();
}
