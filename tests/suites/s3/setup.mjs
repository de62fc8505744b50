// A real S3-compatible server: the Versity S3 Gateway (Apache-2.0), which keeps objects in a folder. Two minutes to build. And a
// real PostgreSQL, whose backups go there.
import { goProgram } from '../../../scripts/go-program.mjs';
import { postgresBinaries } from '../../../scripts/postgres.mjs';

/** The tests take the one that was found here. */
export const setup = () => ({
  ...goProgram({
    name: 'versitygw',
    package: 'github.com/versity/versitygw/cmd/versitygw',
    version: 'v1.8.0',
    go: '1.24',
    variable: 'VERSITYGW',
    proof: ['--version'],
  }),
  TOKENHOUSE_TEST_POSTGRES: postgresBinaries(),
});
