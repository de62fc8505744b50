/**
 * What runs beside the main program, in a thread or a process of its own: each file whose name ends in `-thread`, `-child` or
 * `-worker` is bundled as an entry under its own name (scripts/bundle.mjs). All entries and their shared code are in one folder.
 */
export type Entry =
  'compile-thread' | 'query-worker' | 'json-thread' | 'ledger-worker' | 'llama-child' | 'pdf-child' | 'serve-worker';

/** The built file of an entry. A test gets the program that was built for its run. */
export const entryUrl = (name: Entry): URL => new URL(`./${name}.js`, import.meta.url);

/** The library that keeps llama.cpp's threads and makes its short steps, where `scripts/native.mjs` could compile it for this platform. */
export const llamaLibraryUrl = (): URL =>
  new URL(`./llama-library-${process.platform}-${process.arch}.node`, import.meta.url);

/** Where `scripts/console.mjs` puts the web console, which may come after the start. */
export const consoleUrl = (): URL => new URL('./console/', import.meta.url);

/** Where `scripts/docs-site.mjs` puts the documentation. */
export const docsUrl = (): URL => new URL('./docs/', import.meta.url);
