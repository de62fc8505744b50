// The programs of a real PostgreSQL, for the kills of its replicas.
import { postgresBinaries } from '../../../scripts/postgres.mjs';

export function setup() {
  return { TOKENHOUSE_TEST_POSTGRES: postgresBinaries() };
}
