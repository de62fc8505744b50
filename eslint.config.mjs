import tseslint from 'typescript-eslint';

export default tseslint.config(
  { ignores: ['dist/', '**/node_modules/', 'web/src/api/schema.ts', 'data/', 'tests/fixtures/'] },
  {
    files: ['src/**/*.ts', 'tests/**/*.ts', 'bench/**/*.ts', 'web/src/**/*.{ts,tsx}'],
    extends: [tseslint.configs.base],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      '@typescript-eslint/no-explicit-any': 'error',
      '@typescript-eslint/no-floating-promises': [
        'error',
        {
          allowForKnownSafeCalls: [
            { from: 'package', name: ['test', 'describe', 'it', 'suite'], package: 'node:test' },
          ],
        },
      ],
      '@typescript-eslint/no-misused-promises': [
        'error',
        { checksVoidReturn: { arguments: false, attributes: false } },
      ],
      '@typescript-eslint/await-thenable': 'error',
      '@typescript-eslint/switch-exhaustiveness-check': 'error',
      '@typescript-eslint/consistent-type-imports': 'error',
      '@typescript-eslint/no-unused-vars': [
        'error',
        { argsIgnorePattern: '^_', varsIgnorePattern: '^_', caughtErrorsIgnorePattern: '^_' },
      ],
      '@typescript-eslint/only-throw-error': 'off',
      'no-restricted-properties': [
        'error',
        { object: 'AbortSignal', property: 'any', message: 'In Node 20 it forgets time limits: use combineSignals.' },
      ],
      'no-console': 'error',
      eqeqeq: 'error',
      'prefer-const': 'error',
      'no-var': 'error',
    },
  },
  { files: ['tests/**/*.ts', 'bench/**/*.ts'], rules: { 'no-console': 'off' } },
  { files: ['src/platform/combine-signals.ts'], rules: { 'no-restricted-properties': 'off' } },
);
