// Types of the account API, made from its own document, for the tests that drive it with a generated client: what no longer
// fits the document does not compile.
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { build, clientTests } from './build.mjs';
import { installClients } from './clients.mjs';
import { isStarted, root, setup } from './setup.mjs';

/** After `setup` and `build`. */
export async function writeAccountClient() {
  installClients();
  const load = (...steps) => import(pathToFileURL(path.join(root, ...steps)).href);
  const { accountDocument } = await load('dist', 'src', 'account-api', 'document.js');
  const { accountRoutes } = await load('dist', 'src', 'account-api', 'routes.js');
  const { default: openapiTS, astToString } = await load(
    ...[clientTests, 'node_modules', 'openapi-typescript', 'dist', 'index.mjs'],
  );
  const facts = { version: '0.0.0', routes: accountRoutes, accountUrl: 'http://localhost:8081' };
  const text = astToString(await openapiTS(JSON.stringify(accountDocument(facts))));
  const file = path.join(root, clientTests, 'account-api.ts');
  if (fs.existsSync(file) && fs.readFileSync(file, 'utf8') === text) return;
  fs.writeFileSync(file, text);
}

if (isStarted(import.meta.url)) {
  setup();
  build();
  await writeAccountClient();
}
