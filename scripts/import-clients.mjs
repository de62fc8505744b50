// Imported before the tests; its URL says which packages come from which folders: ?openai=/folder. Older versions of Node import it
// again as the hooks themselves, on the thread that resolves modules.
import module from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const { searchParams: folders } = new URL(import.meta.url);

if (typeof module.registerHooks === 'function') module.registerHooks({ resolve });
else if (!folders.has('hooks')) module.register(`${import.meta.url}&hooks=`);

/** Resolves as if the importing file were in the folder of its package. */
export function resolve(specifier, context, next) {
  const [scope, name] = specifier.split('/');
  const folder = folders.get(scope.startsWith('@') ? `${scope}/${name}` : scope);
  if (folder === null) return next(specifier, context);
  return next(specifier, { ...context, parentURL: pathToFileURL(path.join(folder, 'package.json')).href });
}
