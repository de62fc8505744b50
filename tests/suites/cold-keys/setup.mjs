// One key is in memory at each process: with a second one, the services of the tests read keys when they are presented.
export const setup = () => ({ TOKENHOUSE_TEST_KEYS_IN_MEMORY: '1' });
