import type { Kysely } from 'kysely';
import * as audit from './audit.ts';
import * as attempts from './attempts.ts';
import { authStore } from './auth.ts';
import * as accountViews from './account-views.ts';
import * as accounts from './accounts.ts';
import * as alerts from './alerts.ts';
import * as notices from './notices.ts';
import * as budgets from './budgets.ts';
import * as erasing from '../erasure/erase-account.ts';
import * as persons from '../erasure/erase-person.ts';
import { releasePerson } from '../erasure/release-person.ts';
import type { Database } from '../database.ts';
import { rowsOn } from '../schema/codec.ts';
import * as history from './history.ts';
import * as changes from './changes.ts';
import * as keys from './keys.ts';
import * as keyLastUse from './key-last-use.ts';
import * as loadedKeys from './loaded-keys.ts';
import * as generations from './generations.ts';
import * as keptItems from './stored-items.ts';
import * as batchLines from './batch-lines.ts';
import * as batches from './batch-rows.ts';
import * as files from './files.ts';
import * as limitWindows from './limit-windows.ts';
import * as idempotency from './idempotency.ts';
import * as mail from './mail.ts';
import * as credits from './credit.ts';
import * as autoTopups from './auto-topups.ts';
import * as promotions from './promotions.ts';
import * as payments from './payments.ts';
import * as demoPayments from './demo-payments.ts';
import * as invoices from './invoices.ts';
import * as receipts from './receipts.ts';
import * as refusals from './refusals.ts';
import * as invitations from './invitations.ts';
import * as members from './members.ts';
import { endSecretsOf } from './one-time-secrets.ts';
import * as owner from './owner.ts';
import * as users from './users.ts';
import * as waysIn from './ways-in.ts';
import * as addedBackends from './added-backends.ts';
import * as accountPrices from './account-prices.ts';
import * as transfers from './transfers.ts';
import * as usageRows from './usage-rows.ts';
import * as usageTotals from './usage-totals.ts';
import * as latency from '../reports/latency.ts';
import * as closing from '../proofs/close-day.ts';
import * as proving from '../proofs/prove-row.ts';
import * as signingKeys from '../proofs/signing-keys.ts';
import * as ledgerSpan from '../reports/ledger-span.ts';
import * as reports from '../reports/reports.ts';
import * as rollUps from '../reports/roll-ups.ts';
import * as removal from '../retention/removal.ts';
import * as retention from '../retention/retention.ts';
import * as webhooks from './webhooks.ts';

/** The operations that the repositories offer the main thread, by name: an entry here makes a query callable from there. */
const rowOperations = {
  listAccounts: accounts.listAccounts,
  getAccount: accounts.getAccount,
  listCustomers: accounts.listCustomers,
  namesOfAccounts: accounts.namesOfAccounts,
  heldByAccounts: accounts.heldByAccounts,
  chargedUsage: accounts.chargedUsage,
  createKey: keys.createKey,
  listKeys: keys.listKeys,
  revokeKey: keys.revokeKey,
  loadKeys: loadedKeys.loadKeys,
  findKeys: loadedKeys.findKeys,
  countKeys: loadedKeys.countKeys,
  listKeyHashes: loadedKeys.listKeyHashes,
  allowKey: keys.allowKey,
  allowAccount: accounts.allowAccount,
  planAccount: accounts.planAccount,
  limitAccount: accounts.limitAccount,
  limitKey: keys.limitKey,
  editKey: keys.editKey,
  rotateKey: keys.rotateKey,
  editAccount: accounts.editAccount,
  addAccountPrice: accountPrices.addAccountPrice,
  endAccountPrices: accountPrices.endAccountPrices,
  listAccountPrices: accountPrices.listAccountPrices,
  listAddedBackends: addedBackends.listAddedBackends,
  addBackend: addedBackends.addBackend,
  removeBackend: addedBackends.removeBackend,
  listTransfers: transfers.listTransfers,
  findPresentedKey: keys.findPresentedKey,
  getKey: keys.getKey,
  listAccountKeys: keys.listAccountKeys,
  findSessionKey: keys.findSessionKey,
  keysOfEndedSessions: keys.keysOfEndedSessions,
  beginFile: files.beginFile,
  finishFile: files.finishFile,
  getFile: files.getFile,
  listFiles: files.listFiles,
  leaveFile: files.leaveFile,
  forgetFiles: files.forgetFiles,
  unreadyFiles: files.unreadyFiles,
  createBatch: batches.createBatch,
  getBatch: batches.getBatch,
  listBatches: batches.listBatches,
  batchCost: batches.batchCost,
  cancelBatch: batches.cancelBatch,
  deleteBatch: batches.deleteBatch,
  openBatches: batches.openBatches,
  ownBatch: batches.ownBatch,
  disownBatch: batches.disownBatch,
  addBatchLines: batchLines.addBatchLines,
  removeBatchLines: batchLines.removeBatchLines,
  restartValidation: batches.restartValidation,
  endValidation: batches.endValidation,
  claimBatchLines: batchLines.claimBatchLines,
  keepLineAnswers: batchLines.keepLineAnswers,
  endLines: batchLines.endLines,
  recoverLines: batchLines.recoverLines,
  creditUse: batchLines.creditUse,
  beginFinalizing: batches.beginFinalizing,
  planOutput: batches.planOutput,
  listLineResults: batchLines.listLineResults,
  endBatch: batches.endBatch,
  closeBatch: batches.closeBatch,
  addAlert: alerts.addAlert,
  listAlerts: alerts.listAlerts,
  getAlert: alerts.getAlert,
  changeAlert: alerts.changeAlert,
  deleteAlert: alerts.deleteAlert,
  alertsToLookAt: alerts.alertsToLookAt,
  noteLook: alerts.noteLook,
  listNotices: notices.listNotices,
  advanceNotice: notices.advanceNotice,
  forgetNotice: notices.forgetNotice,
  memberAddresses: notices.memberAddresses,
  addWebhookEndpoint: webhooks.addWebhookEndpoint,
  listWebhookEndpoints: webhooks.listWebhookEndpoints,
  accountsWithEndpoints: webhooks.accountsWithEndpoints,
  getWebhookEndpoint: webhooks.getWebhookEndpoint,
  changeWebhookEndpoint: webhooks.changeWebhookEndpoint,
  deleteWebhookEndpoint: webhooks.deleteWebhookEndpoint,
  addWebhookEvent: webhooks.addWebhookEvent,
  claimDeliveries: webhooks.claimDeliveries,
  noteTry: webhooks.noteTry,
  listDeliveries: webhooks.listDeliveries,
  replayDelivery: webhooks.replayDelivery,
  forgetDeliveries: webhooks.forgetDeliveries,
  addMail: mail.addMail,
  claimMail: mail.claimMail,
  noteMailAttempt: mail.noteMailAttempt,
  listMail: mail.listMail,
  getMail: mail.getMail,
  forgetMail: mail.forgetMail,
  getAutoTopup: autoTopups.getAutoTopup,
  setAutoTopup: autoTopups.setAutoTopup,
  dueAutoTopups: autoTopups.dueAutoTopups,
  claimAutoTopup: autoTopups.claimAutoTopup,
  chargedSince: autoTopups.chargedSince,
  endAutoTopup: autoTopups.endAutoTopup,
  failAutoTopup: autoTopups.failAutoTopup,
  payersOf: autoTopups.payersOf,
  duePromotions: promotions.duePromotions,
  listPromotions: promotions.listPromotions,
  promotionUnused: promotions.promotionUnused,
  closePromotion: promotions.closePromotion,
  beginTopup: payments.beginTopup,
  noteCheckout: payments.noteCheckout,
  getTopup: payments.getTopup,
  listTopups: payments.listTopups,
  findPayment: payments.findPayment,
  findPaymentEvent: payments.findPaymentEvent,
  owedReturns: payments.owedReturns,
  wasPaymentRefused: payments.wasPaymentRefused,
  recordPaymentEvent: payments.recordPaymentEvent,
  paymentsSeenUntil: payments.paymentsSeenUntil,
  notePaymentsSeen: payments.notePaymentsSeen,
  findPaymentReturn: payments.findPaymentReturn,
  recordUndoneReturn: payments.recordUndoneReturn,
  savePaymentMethod: payments.savePaymentMethod,
  getPaymentMethod: payments.getPaymentMethod,
  makeDemoObject: demoPayments.makeDemoObject,
  getDemoObject: demoPayments.getDemoObject,
  changeDemoObject: demoPayments.changeDemoObject,
  listDemoObjects: demoPayments.listDemoObjects,
  listOpenPeriods: invoices.listOpenPeriods,
  closePeriod: invoices.closePeriod,
  listInvoices: invoices.listInvoices,
  getInvoice: invoices.getInvoice,
  statementAt: invoices.statementAt,
  lastStatement: invoices.lastStatement,
  receiptsSince: receipts.receiptsSince,
  listUnreceipted: receipts.listUnreceipted,
  listUncorrectedReturns: receipts.listUncorrectedReturns,
  unreturnedOf: receipts.unreturnedOf,
  issueReceipt: receipts.issueReceipt,
  listReceipts: receipts.listReceipts,
  getReceipt: receipts.getReceipt,
  receiptsOfTopups: receipts.receiptsOfTopups,
  readLedgerSpan: ledgerSpan.readLedgerSpan,
  transferredBefore: ledgerSpan.transferredBefore,
  listUsage: usageRows.listUsage,
  findUsage: usageRows.findUsage,
  accountsOfRequest: usageRows.accountsOfRequest,
  listGenerations: generations.listGenerations,
  cursorOf: generations.cursorOf,
  keysOfHashes: refusals.keysOfHashes,
  addErrors: refusals.addErrors,
  listRefused: refusals.listRefused,
  tidyErrors: refusals.tidyErrors,
  addHistory: history.addHistory,
  recordAudit: audit.recordAudit,
  listAudit: audit.listAudit,
  loadLimitWindows: limitWindows.loadLimitWindows,
  addLimitWindows: limitWindows.addLimitWindows,
  limitWindowsOf: limitWindows.limitWindowsOf,
  beginAttempt: attempts.beginAttempt,
  attemptWasRight: attempts.attemptWasRight,
  forgetAttempts: attempts.forgetAttempts,
  findMembership: members.findMembership,
  listMemberships: members.listMemberships,
  listMembers: members.listMembers,
  lastSignIns: members.lastSignIns,
  getMember: members.getMember,
  setMemberRole: members.setMemberRole,
  addMember: members.addMember,
  keysOfMember: members.keysOfMember,
  createInvitation: invitations.createInvitation,
  listInvitations: invitations.listInvitations,
  deleteInvitation: invitations.deleteInvitation,
  findInvitation: invitations.findInvitation,
  isInvited: invitations.isInvited,
  acceptInvitation: invitations.acceptInvitation,
  joinAnew: invitations.joinAnew,
  hasOperator: owner.hasOperator,
  listOperatorAccounts: owner.listOperatorAccounts,
  setOwnerLink: owner.setOwnerLink,
  getOwnerLink: owner.getOwnerLink,
  isOwnerLink: owner.isOwnerLink,
  createOwner: owner.createOwner,
} as const;

/** Further operations, on SQL's own column names: sums, and those on better-auth's tables. */
const storedOperations = {
  eraseAccount: erasing.eraseAccount,
  exportPage: erasing.exportPage,
  whyPersonStays: persons.whyPersonStays,
  erasePerson: persons.erasePerson,
  getBudget: budgets.getBudget,
  budgetsOf: budgets.budgetsOf,
  modelBudgetsOf: budgets.modelBudgetsOf,
  spentBesideBudget: budgets.spentBesideBudget,
  findChange: changes.findChange,
  sumUsage: usageTotals.sumUsage,
  reportLatency: latency.reportLatency,
  recomputeUsageHours: rollUps.recomputeUsageHours,
  recomputeUsageDays: (db: Kysely<Database>, _request: object) => rollUps.recomputeUsageDays(db),
  closeDay: closing.closeDay,
  addDayHead: closing.addDayHead,
  listSigningKeys: (db: Kysely<Database>, _request: object) => signingKeys.listSigningKeys(db),
  addSigningKey: signingKeys.addSigningKey,
  proveUsage: proving.proveUsage,
  getDayHead: proving.getDayHead,
  listDayHeads: proving.listDayHeads,
  retentionOf: (db: Kysely<Database>, _request: object) => retention.retentionOf(db),
  planRetention: retention.planRetention,
  keepUsageSince: retention.keepUsageSince,
  nextKeptSince: retention.nextKeptSince,
  removeUsage: removal.removeUsage,
  freeUsageSpace: async (db: Kysely<Database>, _request: object) => removal.freePages(db),
  sumErrors: refusals.sumErrors,
  readHistory: history.readHistory,
  forgetChanges: changes.forgetChanges,
  keepItems: keptItems.keepItems,
  findKeptItems: keptItems.findKeptItems,
  tidyKeptItems: keptItems.tidyKeptItems,
  deleteKeptItems: keptItems.deleteKeptItems,
  claimRequest: idempotency.claimRequest,
  keepAnswer: idempotency.keepAnswer,
  leaveRequest: idempotency.leaveRequest,
  tidyRequests: idempotency.tidyRequests,
  lastUseOfKeys: keyLastUse.lastUseOfKeys,
  heldOf: credits.heldOf,
  creditSummary: credits.creditSummary,
  spentByAccounts: credits.spentByAccounts,
  listLedger: credits.listLedger,
  spendSince: reports.spendSince,
  spendOfKeys: reports.spendOfKeys,
  reportUsage: reports.reportUsage,
  reportRefunds: reports.reportRefunds,
  refundsBetween: reports.refundsBetween,
  refundsOf: reports.refundsOf,
  authStore,
  findSession: users.findSession,
  beginView: accountViews.beginView,
  endViews: accountViews.endViews,
  listSessions: users.listSessions,
  endSessions: users.endSessions,
  endSecrets: endSecretsOf,
  forgetExpired: users.forgetExpired,
  removeWayIn: waysIn.removeWayIn,
  hasPerson: users.hasPerson,
  releasePerson,
} as const;

type Operations = typeof rowOperations & typeof storedOperations;
export type RepositoryOperation = keyof Operations;
export type RepositoryRequest<Name extends RepositoryOperation> = Parameters<Operations[Name]>[1];
export type RepositoryAnswer<Name extends RepositoryOperation> = Awaited<ReturnType<Operations[Name]>>;

/** Keys, lists and reports. Rejects with a StoreError. */
export type Repositories = {
  readonly [Name in RepositoryOperation]: (request: RepositoryRequest<Name>) => Promise<RepositoryAnswer<Name>>;
};

/** The same operations on a given connection, without a thread: for the CLI. */
export function repositoriesOn(db: Kysely<Database>): Repositories {
  const rows = rowsOn(db);
  const callable = <On>(operations: object, on: On) =>
    Object.entries(operations as Readonly<Record<string, (on: On, request: unknown) => Promise<unknown>>>).map(
      ([name, run]) => [name, (request: unknown) => run(on, request)],
    );
  return Object.fromEntries([
    ...callable(rowOperations, rows),
    ...callable(storedOperations, db),
  ]) as unknown as Repositories;
}
