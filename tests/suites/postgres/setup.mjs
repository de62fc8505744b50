// The programs of a real server; each test file starts one of its own with them (server.ts).
import { postgresBinaries } from '../../../scripts/postgres.mjs';

export function setup() {
  return { TOKENHOUSE_TEST_POSTGRES: postgresBinaries() };
}
