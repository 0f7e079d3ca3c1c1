// A real OpenID Connect provider on loopback, for the tests of single sign-on.
//
//   node server.js '{"port": 9001, "client": {…}, "people": "/path/people.json"}'
//
// `people` is a file that is read at each sign-in: {"nina": {"groups": ["data"]}}, so that a test
// can change what somebody's groups are. Any password will do. The first line on stdout says that
// it listens.
import { readFileSync } from "node:fs";

import Provider from "oidc-provider";

const { port, client, people } = JSON.parse(process.argv[2]);
const issuer = `http://127.0.0.1:${port}`;

const provider = new Provider(issuer, {
  clients: [client],
  pkce: { methods: ["S256"], required: () => true },
  scopes: ["openid", "profile", "groups"],
  claims: {
    openid: ["sub"],
    profile: ["preferred_username", "email"],
    groups: ["groups"],
  },
  cookies: { keys: ["for the tests alone"] },
  findAccount(_, id) {
    const known = JSON.parse(readFileSync(people))[id];
    if (!known) return undefined;
    return {
      accountId: id,
      claims: async () => ({ sub: id, preferred_username: id, ...known }),
    };
  },
});

provider.listen(port, "127.0.0.1", () => console.log(`listening at ${issuer}`));
