/**
 * What those who ask know of rows. On SQLite the queries run in a thread of their own: a fact that stood beside its query would load that
 * query, and with it Kysely (a ninth of the text of a start), where no query ever runs.
 */

/** Hashes of keys in a page. It takes SQLite's thread 5 ms, which blocks other queries for that time. */
export const hashesAtOnce = 5_000;

/** The size of an idempotent request's row without its answer, including its share of the indexes. */
export const rowBytes = 512;

/** better-auth's provider id for a password. */
export const passwordProvider = 'credential';

/** The model of an account's rates for all models. */
export const everyModel = '*';
