// Reads manifests as the types of Kubernetes, whose names it takes from their first lines. An unknown field is an error.
package main

import (
	"fmt"
	"os"
	"strings"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func typeOf(kind meta.TypeMeta) any {
	switch kind.APIVersion + " " + kind.Kind {
	case "v1 ConfigMap":
		return &core.ConfigMap{}
	case "v1 Service":
		return &core.Service{}
	case "apps/v1 StatefulSet":
		return &apps.StatefulSet{}
	case "policy/v1 PodDisruptionBudget":
		return &policy.PodDisruptionBudget{}
	}
	return nil
}

func check(manifest []byte) error {
	var kind meta.TypeMeta
	if err := yaml.Unmarshal(manifest, &kind); err != nil {
		return err
	}
	into := typeOf(kind)
	if into == nil {
		return fmt.Errorf("%s %s: a kind that this program does not know", kind.APIVersion, kind.Kind)
	}
	if err := yaml.UnmarshalStrict(manifest, into); err != nil {
		return fmt.Errorf("%s: %w", kind.Kind, err)
	}
	return nil
}

func main() {
	failed := false
	for _, path := range os.Args[1:] {
		text, err := os.ReadFile(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		for _, manifest := range strings.Split(string(text), "\n---\n") {
			if err := check([]byte(manifest)); err != nil {
				fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
				failed = true
			}
		}
	}
	if failed {
		os.Exit(1)
	}
}
