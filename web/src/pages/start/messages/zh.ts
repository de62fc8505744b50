import type { Translated } from '../../../i18n/text.ts';
import type { StartTexts } from './en.ts';

const zh: Translated<StartTexts> = {
  answer: '回答',
  arrived: '已到达：{model}，{tokens} 个令牌，{cost}。',
  balanceNote: '每个请求都有价格和收据。',
  createKey: '创建密钥',
  example: '法国的首都是哪里？',
  failed: '此浏览器无法访问推理主机 {url}。',
  firstToken: '首个令牌用时 {time}',
  keyPlaceholder: '您的密钥',
  lead: '一分钟内完成您的第一个请求。',
  makeKey: '创建密钥并放入您的程序。',
  mistake1: '地址缺少 /v1 或重复：OpenAI 客户端使用 {url}/v1，Anthropic 客户端使用 {url}。',
  mistake2: '密钥不正确：请查看响应中是否有 401 invalid_api_key。',
  mistake3: '程序运行在别处：{url} 只能在服务器监听的网络内访问。',
  mistakes: '还没有？三个常见原因',
  model: '模型',
  noModels: '此服务器没有可供该账户使用的模型。请联系运营者。',
  prompt: '您的问题',
  send: '发送第一个请求',
  step1: '1. 在这里向模型提问',
  step2: '2. 从您自己的程序调用',
  step3: '3. 您自己的请求到达',
  stop: '停止',
  title: '开始',
  useKey: '请求使用本次会话的密钥，无需创建。',
  waiting: '正在等待密钥的第一个请求…',
};

export default zh;
