// actionlint, built from its Go module: half a minute the first time.
import { goProgram } from '../../../scripts/go-program.mjs';

export const setup = () =>
  goProgram({
    name: 'actionlint',
    package: 'github.com/rhysd/actionlint/cmd/actionlint',
    version: 'v1.7.12',
    go: '1.25',
    variable: 'ACTIONLINT',
    proof: ['-version'],
  });
