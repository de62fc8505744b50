/**
 * Programs that run beside the main one, in a separate thread or process: each file whose name ends in `-thread`, `-child` or
 * `-worker` is bundled as an entry under its own name (scripts/bundle.mjs). All entries and their shared code are in one folder, also `main`, the command.
 */
export type Entry =
  | 'main'
  | 'compile-thread'
  | 'query-worker'
  | 'json-thread'
  | 'ledger-worker'
  | 'llama-child'
  | 'pdf-child'
  | 'serve-worker';

/** The built file of an entry. In a test, it is the program built for that run. */
export const entryUrl = (name: Entry): URL => new URL(`./${name}.js`, import.meta.url);

/** The library that holds llama.cpp's threads and runs its short steps, if `scripts/native.mjs` could compile it for this platform. */
export const llamaLibraryUrl = (): URL =>
  new URL(`./llama-library-${process.platform}-${process.arch}.node`, import.meta.url);

/** Where `scripts/console.mjs` puts the web console, which may come after the start. */
export const consoleUrl = (): URL => new URL('./console/', import.meta.url);

/** Where `scripts/docs-site.mjs` puts the documentation. */
export const docsUrl = (): URL => new URL('./docs/', import.meta.url);
